//! Adds to a shader the helper functions that it calls, and no others: the helpers of `math.wgsl` and its kind are many,
//! and drivers compile what they are given. A helper is a top-level `fn t_name(` or `const T_NAME`; what follows up to
//! the next one belongs to it.

use super::preprocess::template;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

const FILES: [&str; 5] = ["math.wgsl", "trig.wgsl", "convert.wgsl", "int.wgsl", "int64.wgsl"];

fn helpers() -> &'static BTreeMap<&'static str, &'static str> {
    static HELPERS: OnceLock<BTreeMap<&'static str, &'static str>> = OnceLock::new();
    HELPERS.get_or_init(|| FILES.iter().filter_map(|file| template(file)).flat_map(split).collect())
}

/// Splits a helper file into (name, text) of each function or constant.
fn split(text: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut starts: Vec<(usize, &'static str)> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let rest = line.strip_prefix("fn ").or_else(|| line.strip_prefix("const "));
        if let Some(rest) = rest {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            starts.push((at, &rest[..end]));
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).map(|s| s.0).chain([text.len()]);
    starts.iter().zip(ends).map(|(&(start, name), end)| (name, &text[start..end])).collect()
}

/// The names in `text` that helpers could have.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| w.starts_with("t_") || w.starts_with("T_"))
}

/// Appends to `source` every helper that it uses, directly or through others.
pub fn link(source: &mut String) {
    let helpers = helpers();
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = Vec::new();
    for name in names(source) {
        if let Some((&name, &text)) = helpers.get_key_value(name)
            && found.insert(name)
        {
            open.push(text);
        }
    }
    while let Some(text) = open.pop() {
        for name in names(text) {
            if let Some((&name, &text)) = helpers.get_key_value(name)
                && found.insert(name)
            {
                open.push(text);
            }
        }
    }
    for name in found {
        if let Some(text) = helpers.get(name) {
            // Comment lines belong to the files; drivers need none.
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//") && !line.trim().is_empty()) {
                source.push_str(line);
                source.push('\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_come_with_what_they_call() {
        let mut source = "fn main() { let x = t_maximum(1.0, 2.0); }\n".to_string();
        link(&mut source);
        assert!(source.contains("fn t_maximum("));
        assert!(source.contains("fn t_is_nan("));
        assert!(!source.contains("fn t_erf("));
        assert_eq!(source.matches("fn t_is_nan(").count(), 1);
    }
}
