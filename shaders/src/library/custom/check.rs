//! Compiles a user's kernel with naga, before any device sees it, and tells what is wrong by the user's own lines.

use super::{Source, Target, entry};
use std::{error::Error as _, fmt::Write as _};
use tallow_graph::{Error, Result, kernel::Wgsl};

impl Source {
    /// An error of the compiler's, with the line of the user's source if it lies there.
    fn complain<'a>(&self, name: &str, message: &str, spans: impl Iterator<Item = (naga::Span, &'a str)>) -> Error {
        let mut told = String::new();
        for (span, what) in spans {
            let line = span.location(&self.text).line_number as usize;
            let own = line.checked_sub(self.before + 1).filter(|&at| at < self.lines);
            let Some(own) = own.filter(|_| span.is_defined()) else { continue };
            let text = self.text.lines().nth(line - 1).unwrap_or("").trim();
            let _ = write!(told, "\n  line {}: {text}{}{what}", own + 1, if what.is_empty() { "" } else { "    // " });
        }
        Error::op("custom", format!("the WGSL of '{name}' does not compile: {message}{told}"))
    }
}

/// Whether the source compiles, binds only what it is given, and has an entry point that fits the device.
///
/// # Errors
/// What is wrong, with the lines where the compiler found it.
pub(super) fn compile(name: &str, wgsl: &Wgsl, source: &Source, operands: usize, target: &Target) -> Result<()> {
    let refuse = |message: String| Err(Error::op("custom", format!("'{name}' {message}")));
    let module = match naga::front::wgsl::parse_str(&source.text) {
        Ok(module) => module,
        Err(error) => {
            let mut message = error.message().to_string();
            let needs_element = matches!(wgsl, Wgsl::Elements(_)) && !source.text.contains("fn element");
            if needs_element {
                message += " (it must define `fn element(i: u32)`)";
            }
            for note in error.notes() {
                let _ = write!(message, "; {note}");
            }
            return Err(source.complain(name, &message, error.labels()));
        }
    };
    let mut capabilities = naga::valid::Capabilities::empty();
    if target.f16 {
        capabilities |= naga::valid::Capabilities::SHADER_FLOAT16;
    }
    if target.subgroups.is_some() {
        capabilities |= naga::valid::Capabilities::SUBGROUP;
    }
    let checked = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities).validate(&module);
    if let Err(error) = checked {
        let mut message = error.as_inner().to_string();
        let mut cause = error.as_inner().source();
        while let Some(inner) = cause {
            let _ = write!(message, ": {inner}");
            cause = inner.source();
        }
        return Err(source.complain(name, &message, error.spans().map(|(span, what)| (*span, what.as_str()))));
    }
    let bound = |binding: u32| binding as usize <= operands + 1;
    let ours = |name: &str| name == "out" || name == "tallow_block" || name.strip_prefix("in").is_some_and(is_number);
    for (_, variable) in module.global_variables.iter() {
        let name = variable.name.as_deref().unwrap_or("");
        if let Some(binding) = &variable.binding
            && !(binding.group == 0 && bound(binding.binding) && ours(name))
        {
            return refuse(format!("binds {name} itself: operands come as in0, in1 and on, the result is out"));
        }
    }
    if module.overrides.iter().any(|(_, value)| value.init.is_none()) {
        return refuse("has an override constant without a value".into());
    }
    let main = module.entry_points.iter().find(|e| e.name == entry(wgsl) && e.stage == naga::ShaderStage::Compute);
    let Some(main) = main else {
        return refuse("needs an entry point: `@compute @workgroup_size(64) fn main(...)`".into());
    };
    let invocations = main.workgroup_size.iter().map(|&n| u64::from(n)).product::<u64>();
    if invocations > u64::from(target.max_workgroup_invocations) {
        return refuse(format!(
            "has {invocations} invocations in a workgroup, and this device allows {}",
            target.max_workgroup_invocations
        ));
    }
    Ok(())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}
