//! Makes a test of each cell of the last column of docs/cheatsheet.md; `tests/cheatsheet.rs` includes them.

use std::{env, fmt::Write as _, fs, path::PathBuf};

fn main() {
    let page = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../docs/cheatsheet.md");
    println!("cargo::rerun-if-changed={}", page.display());
    let text = fs::read_to_string(&page).expect("docs/cheatsheet.md is there");
    let mut tests = String::new();
    let prelude = text.split("```rust,ignore\n").nth(1).and_then(|rest| rest.split("```").next());
    let prelude = prelude.expect("the cheat sheet begins with the values at hand");
    for (number, line) in text.lines().enumerate() {
        let Some(cell) = last_cell(line) else { continue };
        let _ = write!(
            tests,
            "#[test]\nfn line_{}() -> tallow::Result<()> {{\n{prelude}\nlet value = {{ {cell} }};\n\
             (&Probe(value)).run()\n}}\n",
            number + 1
        );
    }
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("cheatsheet.rs");
    fs::write(out, tests).expect("the tests can be written");
}

/// The code in the fourth cell of a table's row.
fn last_cell(line: &str) -> Option<String> {
    let row = line.strip_prefix("| ")?.strip_suffix(" |")?.replace("\\|", "\u{1}");
    let cells: Vec<&str> = row.split(" | ").collect();
    let code = cells.get(3)?.trim().strip_prefix('`')?.strip_suffix('`')?;
    Some(code.replace('\u{1}', "|"))
}
