//! Versions out of Cargo.lock: wasm-bindgen's command line must be of exactly the version that the library has.

/// The version of `package` in the text of a Cargo.lock. `None` when it is absent, or there more than once.
pub fn version(lock: &str, package: &str) -> Option<String> {
    let mut found = lock.split("[[package]]").skip(1).filter_map(|entry| {
        let field = |name: &str| {
            entry.lines().find_map(|line| {
                let value = line.strip_prefix(name)?.trim_start().strip_prefix('=')?;
                value.trim().strip_prefix('"')?.strip_suffix('"')
            })
        };
        if field("name")? == package { field("version").map(String::from) } else { None }
    });
    let first = found.next();
    if found.next().is_some() { None } else { first }
}

#[cfg(test)]
mod tests {
    use super::version;

    const LOCK: &str = r#"
version = 4

[[package]]
name = "hashbrown"
version = "0.15.5"

[[package]]
name = "hashbrown"
version = "0.16.0"

[[package]]
name = "wasm-bindgen"
version = "0.2.130"
dependencies = [
 "cfg-if",
]

[[package]]
name = "wasm-bindgen-futures"
version = "0.4.53"
"#;

    #[test]
    fn finds_the_whole_name_only() {
        assert_eq!(version(LOCK, "wasm-bindgen").as_deref(), Some("0.2.130"));
        assert_eq!(version(LOCK, "wasm-bindgen-futures").as_deref(), Some("0.4.53"));
        assert_eq!(version(LOCK, "wasm"), None);
    }

    #[test]
    fn two_versions_are_no_answer() {
        assert_eq!(version(LOCK, "hashbrown"), None);
    }
}
