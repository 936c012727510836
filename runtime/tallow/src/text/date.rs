//! `strftime` for chat templates that print today's date: the directives they use, in UTC and English.

use std::fmt::Write as _;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    #[cfg(all(target_family = "wasm", target_os = "unknown"))]
    {
        // `SystemTime` panics there. A clock before 1970 counts as 1970.
        (js_sys::Date::now() / 1000.0) as u64
    }
    #[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
    {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }
}

/// The time in the given form.
pub(crate) fn format(seconds: u64, format: &str) -> Result<String, String> {
    if format.len() > 1024 {
        return Err("strftime_now: the format is over 1024 bytes".into());
    }
    // Years after 9999 help nobody, and keep the numbers small.
    let seconds = seconds.min(253_402_300_799);
    let days = seconds / 86_400;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let mut year = 1970;
    let mut day = days;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let of_year = day + 1;
    let mut month = 0;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let name = |list: &[&'static str], at: usize| list.get(at).copied().unwrap_or_default();
    let (month_name, day_name) = (name(&MONTHS, month), name(&DAYS, (days % 7) as usize));
    let short = |word: &'static str| word.get(..3).unwrap_or(word);
    let (month, day) = (month as u64 + 1, day + 1);

    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let (directive, padded) = match chars.next() {
            Some('-') => (chars.next(), false),
            other => (other, true),
        };
        let number = |out: &mut String, n: u64| if padded { write!(out, "{n:02}") } else { write!(out, "{n}") };
        let written = match directive {
            Some('Y') => write!(out, "{year}"),
            Some('y') => number(&mut out, year % 100),
            Some('m') => number(&mut out, month),
            Some('d') => number(&mut out, day),
            Some('e') => write!(out, "{day:2}"),
            Some('H') => number(&mut out, hour),
            Some('I') => number(&mut out, (hour + 11) % 12 + 1),
            Some('M') => number(&mut out, minute),
            Some('S') => number(&mut out, second),
            Some('p') => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('j') => write!(out, "{of_year:03}"),
            Some('B') => write!(out, "{month_name}"),
            Some('b') => write!(out, "{}", short(month_name)),
            Some('A') => write!(out, "{day_name}"),
            Some('a') => write!(out, "{}", short(day_name)),
            Some('F') => write!(out, "{year}-{month:02}-{day:02}"),
            Some('T') => write!(out, "{hour:02}:{minute:02}:{second:02}"),
            Some('Z') => write!(out, "UTC"),
            Some('z') => write!(out, "+0000"),
            Some('%') => write!(out, "%"),
            other => return Err(format!("strftime_now: no directive %{}", other.map_or(String::new(), String::from))),
        };
        written.map_err(|e| e.to_string())?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::format;

    /// Expected with Python's datetime.fromtimestamp(n, timezone.utc).strftime.
    #[test]
    fn dates_are_right() {
        let long = "%A %a %d %B %b %Y %y %H:%M:%S %I %p %j %%";
        assert_eq!(format(0, long).unwrap(), "Thursday Thu 01 January Jan 1970 70 00:00:00 12 AM 001 %");
        assert_eq!(format(1_709_210_096, long).unwrap(), "Thursday Thu 29 February Feb 2024 24 12:34:56 12 PM 060 %");
        assert_eq!(format(4_107_542_399, long).unwrap(), "Sunday Sun 28 February Feb 2100 00 23:59:59 11 PM 059 %");
        assert_eq!(format(4_107_542_400, "%F %-d %-m").unwrap(), "2100-03-01 1 3");
        assert!(format(0, "%Q").unwrap_err().contains("%Q"));
    }
}
