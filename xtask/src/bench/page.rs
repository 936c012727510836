//! docs/performance.md: prose that people write, and between marks the sections that a run writes. A run replaces its own
//! section and touches nothing else.

use std::io::Write;
use std::path::Path;

fn begin(section: &str) -> String {
    format!("<!-- bench {section}: written by `cargo xtask bench`, do not edit -->")
}

fn end(section: &str) -> String {
    format!("<!-- /bench {section} -->")
}

/// The page with the section's body replaced; a section that it lacks comes at the end. `Err` where marks are broken.
pub fn replace(page: &str, section: &str, body: &str) -> Result<String, String> {
    let (begin, end) = (begin(section), end(section));
    let block = format!("{begin}\n{}\n{end}\n", body.trim_end());
    match (page.find(&begin), page.find(&end)) {
        (None, None) if page.trim().is_empty() => Ok(block),
        (None, None) => Ok(format!("{}\n\n{block}", page.trim_end())),
        (Some(from), Some(to)) if from < to => {
            let before = page.get(..from).unwrap_or_default();
            let after = page.get(to + end.len()..).unwrap_or_default().trim_start_matches('\n');
            let gap = if after.is_empty() { "" } else { "\n" };
            Ok(format!("{before}{block}{gap}{after}"))
        }
        _ => Err(format!("the marks of section `{section}` do not pair: restore `{begin}` and `{end}`")),
    }
}

/// Replaces the section's body in the page's file, which is made where there is none.
pub fn update(path: &Path, section: &str, body: &str) -> Result<(), String> {
    let page = match std::fs::read_to_string(path) {
        Ok(page) => page,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
    };
    write_whole(path, &replace(&page, section, body)?)
}

/// Writes a file as a whole or not at all: beside it first, then renamed.
pub fn write_whole(path: &Path, text: &str) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("{} cannot be written: {error}", path.display());
    let part = path.with_extension(format!("part-{}", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    };
    write().map_err(|error| {
        // Nothing half-written stays; that it may not be there is no second error.
        let _ = std::fs::remove_file(&part);
        cannot(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_added_then_replaced_and_the_rest_stays() {
        let page = "# Speed\n\nProse.\n";
        let one = replace(page, "map", "| a |").unwrap();
        let two = replace(&one, "rows", "| b |").unwrap();
        let again = replace(&two, "map", "| c |\n").unwrap();
        assert!(two.starts_with(page) && two.contains("| a |") && two.contains("| b |"));
        assert_eq!(again, two.replace("| a |", "| c |"));
        assert_eq!(replace(&again, "map", "| c |").unwrap(), again);
    }

    #[test]
    fn prose_after_a_section_stays_after_it() {
        let page = format!("{}\nold\n{}\n\nMore prose.\n", begin("map"), end("map"));
        let new = replace(&page, "map", "new").unwrap();
        assert_eq!(new, page.replace("old", "new"));
    }

    #[test]
    fn broken_marks_are_an_error() {
        for page in [begin("map"), end("map"), format!("{}{}", end("map"), begin("map"))] {
            assert!(replace(&page, "map", "x").unwrap_err().contains("do not pair"));
        }
        // Another group's name that begins alike is another section.
        assert!(replace(&begin("map-wgpu"), "map", "x").is_ok());
    }

    #[test]
    fn a_file_is_replaced_and_no_part_stays() {
        let folder = std::env::temp_dir().join(format!("tallow-bench-page-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("page.md");
        write_whole(&path, "one").unwrap();
        write_whole(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        assert!(write_whole(&folder.join("no/such/page.md"), "x").is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
