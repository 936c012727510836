//! The small preprocessor of the WGSL templates: definitions, conditions, unrolled loops, includes.
//!
//! Directives stand on lines of their own and begin with `//#`, so that a template stays legal-looking WGSL:
//! - `//#include NAME` puts another template here;
//! - `//#define NAME VALUE` defines a name, `${NAME}` is replaced by its value;
//! - `//#if NAME`, `//#if !NAME`, `//#else`, `//#endif`: a name is true if it is defined and not empty or `0`;
//! - `//#for NAME COUNT` ... `//#end`: repeats the lines with `${NAME}` = 0, 1, ...; COUNT is a number or a name.

use std::{collections::HashMap, fmt::Write as _};
use tallow_graph::{Error, Result};

/// Names and their values.
#[derive(Debug, Clone, Default)]
pub struct Defines(HashMap<String, String>);

impl Defines {
    /// Defines a name; a later definition wins.
    pub fn set(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.0.insert(name.to_string(), value.to_string());
        self
    }

    /// A name that `//#if` finds true or false.
    pub fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        self.set(name, u8::from(value))
    }

    fn is_true(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|v| !v.is_empty() && v != "0")
    }
}

/// The templates of `shaders/wgsl`, by the name that `//#include` uses.
pub fn template(name: &str) -> Option<&'static str> {
    Some(match name {
        "math.wgsl" => include_str!("../../wgsl/math.wgsl"),
        "trig.wgsl" => include_str!("../../wgsl/trig.wgsl"),
        "convert.wgsl" => include_str!("../../wgsl/convert.wgsl"),
        "int.wgsl" => include_str!("../../wgsl/int.wgsl"),
        "int64.wgsl" => include_str!("../../wgsl/int64.wgsl"),
        "row.wgsl" => include_str!("../../wgsl/row.wgsl"),
        "row_columns.wgsl" => include_str!("../../wgsl/row_columns.wgsl"),
        "matvec_unit.wgsl" => include_str!("../../wgsl/matvec_unit.wgsl"),
        "matvec.wgsl" => include_str!("../../wgsl/matvec.wgsl"),
        "matmul.wgsl" => include_str!("../../wgsl/matmul.wgsl"),
        "matmul_combine.wgsl" => include_str!("../../wgsl/matmul_combine.wgsl"),
        "matmul_coop_begin.wgsl" => include_str!("../../wgsl/matmul_coop_begin.wgsl"),
        "matmul_coop_step.wgsl" => include_str!("../../wgsl/matmul_coop_step.wgsl"),
        "matmul_coop_end.wgsl" => include_str!("../../wgsl/matmul_coop_end.wgsl"),
        "matmul_serial.wgsl" => include_str!("../../wgsl/matmul_serial.wgsl"),
        "conv.wgsl" => include_str!("../../wgsl/conv.wgsl"),
        "conv_serial.wgsl" => include_str!("../../wgsl/conv_serial.wgsl"),
        "conv_block.wgsl" => include_str!("../../wgsl/conv_block.wgsl"),
        "attention.wgsl" => include_str!("../../wgsl/attention.wgsl"),
        "attention_tiles.wgsl" => include_str!("../../wgsl/attention_tiles.wgsl"),
        "attention_serial.wgsl" => include_str!("../../wgsl/attention_serial.wgsl"),
        "gather.wgsl" => include_str!("../../wgsl/gather.wgsl"),
        "fault.wgsl" => include_str!("../../wgsl/fault.wgsl"),
        "pick.wgsl" => include_str!("../../wgsl/pick.wgsl"),
        "scatter.wgsl" => include_str!("../../wgsl/scatter.wgsl"),
        "sort.wgsl" => include_str!("../../wgsl/sort.wgsl"),
        "scan.wgsl" => include_str!("../../wgsl/scan.wgsl"),
        "random.wgsl" => include_str!("../../wgsl/random.wgsl"),
        "quant/q4_0.wgsl" => include_str!("../../wgsl/quant/q4_0.wgsl"),
        "quant/q4_1.wgsl" => include_str!("../../wgsl/quant/q4_1.wgsl"),
        "quant/q8_0.wgsl" => include_str!("../../wgsl/quant/q8_0.wgsl"),
        "quant/q4_k.wgsl" => include_str!("../../wgsl/quant/q4_k.wgsl"),
        "quant/q6_k.wgsl" => include_str!("../../wgsl/quant/q6_k.wgsl"),
        _ => return None,
    })
}

/// Expands the template of that name.
pub fn expand(name: &str, defines: &Defines) -> Result<String> {
    let text = template(name).ok_or_else(|| Error::format("WGSL template", format!("there is no template {name}")))?;
    expand_text(name, text, defines)
}

/// Expands `text`; errors name `file` and the line.
pub fn expand_text(file: &str, text: &str, defines: &Defines) -> Result<String> {
    let lines: Vec<(usize, &str)> = text.lines().enumerate().map(|(i, line)| (i + 1, line)).collect();
    let mut out = String::with_capacity(text.len());
    let mut defines = defines.clone();
    run(file, &lines, &mut defines, &mut out, 0)?;
    Ok(out)
}

fn fail<T>(file: &str, line: usize, what: impl std::fmt::Display) -> Result<T> {
    Err(Error::format("WGSL template", format!("{file}:{line}: {what}")))
}

/// How deep includes may nest: deeper is a cycle.
const MAX_DEPTH: usize = 16;

fn run(file: &str, lines: &[(usize, &str)], defines: &mut Defines, out: &mut String, depth: usize) -> Result<()> {
    let mut at = 0;
    while let Some(&(number, line)) = lines.get(at) {
        at += 1;
        let Some(directive) = line.trim_start().strip_prefix("//#") else {
            substitute(file, number, line, defines, out)?;
            out.push('\n');
            continue;
        };
        let mut words = directive.split_whitespace();
        match words.next() {
            Some("include") => {
                if depth >= MAX_DEPTH {
                    return fail(file, number, "includes nest too deeply");
                }
                let Some(name) = words.next() else { return fail(file, number, "include of what?") };
                let Some(text) = template(name) else {
                    return fail(file, number, format_args!("there is no template {name}"));
                };
                let inner: Vec<(usize, &str)> = text.lines().enumerate().map(|(i, l)| (i + 1, l)).collect();
                run(name, &inner, defines, out, depth + 1)?;
            }
            Some("define") => {
                let Some(name) = words.next() else { return fail(file, number, "define what?") };
                let mut value = String::new();
                substitute(file, number, &words.collect::<Vec<_>>().join(" "), defines, &mut value)?;
                defines.set(name, value);
            }
            Some("if") => {
                let Some(name) = words.next() else { return fail(file, number, "if what?") };
                let truth = match name.strip_prefix('!') {
                    Some(name) => !defines.is_true(name),
                    None => defines.is_true(name),
                };
                let (middle, end) = block(file, number, &lines[at..], "if", "endif")?;
                let body = &lines[at..at + end];
                let (yes, no) = match middle {
                    Some(middle) => (&body[..middle], &body[middle + 1..]),
                    None => (body, &body[..0]),
                };
                run(file, if truth { yes } else { no }, defines, out, depth)?;
                at += end + 1;
            }
            Some("for") => {
                let (Some(name), Some(count)) = (words.next(), words.next()) else {
                    return fail(file, number, "for needs a name and a count");
                };
                let count = defines.0.get(count).map_or(count, String::as_str);
                let Ok(count) = count.parse::<usize>() else {
                    return fail(file, number, format_args!("{count} is not a count"));
                };
                let (_, end) = block(file, number, &lines[at..], "for", "end")?;
                let saved = defines.0.get(name).cloned();
                for i in 0..count {
                    defines.set(name, i);
                    run(file, &lines[at..at + end], defines, out, depth)?;
                }
                match saved {
                    Some(value) => defines.0.insert(name.to_string(), value),
                    None => defines.0.remove(name),
                };
                at += end + 1;
            }
            Some(other) => return fail(file, number, format_args!("unexpected directive {other}")),
            None => return fail(file, number, "empty directive"),
        }
    }
    Ok(())
}

/// Finds the end of a block that was opened at `number`, and its `else` at the same level: positions in `lines`.
fn block(
    file: &str,
    number: usize,
    lines: &[(usize, &str)],
    open: &str,
    close: &str,
) -> Result<(Option<usize>, usize)> {
    let mut level = 0;
    let mut middle = None;
    for (i, (_, line)) in lines.iter().enumerate() {
        let Some(directive) = line.trim_start().strip_prefix("//#") else { continue };
        let word = directive.split_whitespace().next().unwrap_or("");
        if word == open {
            level += 1;
        } else if word == close {
            if level == 0 {
                return Ok((middle, i));
            }
            level -= 1;
        } else if word == "else" && open == "if" && level == 0 {
            middle = Some(i);
        }
    }
    fail(file, number, format_args!("{open} without {close}"))
}

fn substitute(file: &str, number: usize, line: &str, defines: &Defines, out: &mut String) -> Result<()> {
    let mut rest = line;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let Some(end) = rest[start..].find('}') else { return fail(file, number, "${ without }") };
        let name = &rest[start + 2..start + end];
        let Some(value) = defines.0.get(name) else {
            return fail(file, number, format_args!("{name} is not defined"));
        };
        let _ = write!(out, "{value}");
        rest = &rest[start + end + 1..];
    }
    out.push_str(rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str, defines: &[(&str, &str)]) -> Result<String> {
        let mut d = Defines::default();
        for (name, value) in defines {
            d.set(name, value);
        }
        expand_text("t.wgsl", text, &d)
    }

    #[test]
    fn substitutes_and_defines() {
        assert_eq!(expand("a ${x} b${x}", &[("x", "1")]).unwrap(), "a 1 b1\n");
        assert_eq!(expand("//#define y ${x}u + 2u\n${y}", &[("x", "1")]).unwrap(), "1u + 2u\n");
    }

    #[test]
    fn chooses_branches_also_nested() {
        let text = "//#if A\na\n//#if B\nab\n//#else\na!b\n//#endif\n//#else\n!a\n//#endif\nend";
        assert_eq!(expand(text, &[("A", "1"), ("B", "0")]).unwrap(), "a\na!b\nend\n");
        assert_eq!(expand(text, &[("A", "1"), ("B", "1")]).unwrap(), "a\nab\nend\n");
        assert_eq!(expand(text, &[]).unwrap(), "!a\nend\n");
        assert_eq!(expand("//#if !A\nx\n//#endif", &[]).unwrap(), "x\n");
    }

    #[test]
    fn unrolls_loops() {
        let text = "//#for i N\n//#for j 2\nv${i}${j}\n//#end\n//#end";
        assert_eq!(expand(text, &[("N", "2")]).unwrap(), "v00\nv01\nv10\nv11\n");
    }

    #[test]
    fn errors_name_file_and_line() {
        let error = |text: &str| expand(text, &[]).unwrap_err().to_string();
        assert!(error("\n${nope}").contains("t.wgsl:2: nope is not defined"));
        assert!(error("//#if A\nx").contains("t.wgsl:1: if without endif"));
        assert!(error("x\n//#for i many\n//#end").contains("t.wgsl:2: many is not a count"));
        assert!(error("//#include missing.wgsl").contains("missing.wgsl"));
        assert!(error("//#endif").contains("unexpected directive endif"));
        assert!(error("${x").contains("without }"));
    }
}
