//! Users' kernels: what stands before and after their source, and the check that it compiles, made where the kernel is
//! given: a device would tell later, and by lines of a text that the user never saw. The check is the feature
//! `check-wgsl`, since it takes a compiler along.
//!
//! Uniform block: the sizes of each operand and of the result, then the number of elements of each, then the scalars as
//! f32.

#[cfg(feature = "check-wgsl")]
mod check;

use super::{Shader, Target, code::fill_words, spread};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use smallvec::{SmallVec, smallvec};
use std::fmt::Write as _;
use tallow_graph::{
    DType, Error, Result, Scalar,
    kernel::{Custom, CustomKernel, Wgsl},
};

/// Whether a source is there, and buffers can be declared for it.
pub fn supported(kernel: &CustomKernel) -> bool {
    kernel.custom.wgsl().is_some()
        && kernel.inputs.iter().chain([&kernel.output]).all(|&(dtype, _)| element(dtype).is_some())
}

fn element(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("f32"),
        DType::I32 => Some("i32"),
        DType::U32 => Some("u32"),
        _ => None,
    }
}

/// Ranks of the operands, then of the result.
fn ranks(kernel: &CustomKernel) -> impl Iterator<Item = usize> + '_ {
    kernel.inputs.iter().chain([&kernel.output]).map(|&(_, rank)| usize::from(rank))
}

/// Sizes of the operands, then of the result.
fn dims<'a>(kernel: &CustomKernel, mut words: &'a [i64]) -> Option<SmallVec<[&'a [i64]; 4]>> {
    ranks(kernel)
        .map(|rank| {
            let (own, rest) = words.split_at_checked(rank)?;
            words = rest;
            Some(own)
        })
        .collect()
}

fn elements(dims: &[i64]) -> Option<u64> {
    dims.iter().try_fold(1u64, |n, &size| n.checked_mul(u64::try_from(size).ok()?))
}

fn param_words(kernel: &CustomKernel) -> usize {
    ranks(kernel).sum::<usize>() + kernel.inputs.len() + 1 + usize::from(kernel.scalars)
}

/// The uniform block.
pub fn params(kernel: &CustomKernel, words: &[i64], scalars: &[Scalar], out: &mut Vec<u32>) -> Result<()> {
    let few = || Error::op("custom", "the step brings too few words or scalars");
    let dims = dims(kernel, words).ok_or_else(few)?;
    for dims in &dims {
        fill_words("custom", dims, out)?;
    }
    for dims in &dims {
        let n = elements(dims).filter(|&n| n < 0xffff_fff0);
        out.push(n.ok_or_else(|| Error::op("custom", "an operand of 2^32 elements or more: split it"))? as u32);
    }
    let scalars = scalars.get(..usize::from(kernel.scalars)).ok_or_else(few)?;
    out.extend(scalars.iter().map(|scalar| (scalar.to_f64() as f32).to_bits()));
    Ok(())
}

/// The grid: the user's own, or an invocation an element.
pub fn grids(kernel: &CustomKernel, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    let Some(dims) = dims(kernel, words) else { return smallvec![[0; 3]] };
    let Some((result, _)) = dims.split_last() else { return smallvec![[0; 3]] };
    match kernel.custom.wgsl() {
        Some(Wgsl::Kernel(_, grid)) => {
            let sizes: Vec<Vec<usize>> =
                dims.iter().map(|dims| dims.iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect()).collect();
            let all: Vec<&[usize]> = sizes.iter().map(Vec::as_slice).collect();
            smallvec![all.split_last().map_or([0; 3], |(out, operands)| grid(operands, out))]
        }
        _ => smallvec![spread(elements(result).unwrap_or(0).div_ceil(64), target)],
    }
}

/// The shader.
pub fn shader(kernel: &CustomKernel, target: &Target) -> Result<Shader> {
    let wgsl = kernel.custom.wgsl().ok_or_else(|| kernel.custom.missing("WGSL"))?;
    Ok(Shader {
        label: format!("custom {}", kernel.custom.name()),
        source: Source::new(wgsl, &kernel.inputs, kernel.output, kernel.scalars, target.naga)?.text,
        entries: smallvec![entry(wgsl)],
        inputs: kernel.inputs.len(),
        outputs: 1,
        scratch: false,
        fault: false,
        param_words: param_words(kernel),
    })
}

const fn entry(wgsl: &Wgsl) -> &'static str {
    match wgsl {
        Wgsl::Elements(_) => "tallow_main",
        Wgsl::Kernel(..) => "main",
    }
}

const ELEMENTS: &str = "@compute @workgroup_size(64)
fn tallow_main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, \
                        @builtin(local_invocation_index) lid: u32) {
    let i = (wid.y * nwg.x + wid.x) * 64u + lid;
    if (i < out_len()) {
        element(i);
    }
}
";

/// A user's source with what it needs around it.
#[cfg_attr(not(feature = "check-wgsl"), expect(dead_code, reason = "lines are for the check's errors"))]
struct Source {
    text: String,
    /// Lines before the user's own.
    before: usize,
    /// The user's own.
    lines: usize,
}

impl Source {
    fn new(wgsl: &Wgsl, inputs: &[(DType, u8)], output: (DType, u8), scalars: u8, naga: bool) -> Result<Self> {
        let (Wgsl::Elements(user) | Wgsl::Kernel(user, _)) = wgsl;
        let mut text = String::new();
        // Directives must stand before all else; their own lines stay as empty ones. Naga knows no `enable subgroups;`.
        let directive = |line: &str| {
            let line = line.trim_start();
            ["enable ", "requires ", "diagnostic("].iter().any(|word| line.starts_with(word))
        };
        for line in user.lines().filter(|line| directive(line) && !(naga && line.contains("subgroups"))) {
            let _ = writeln!(text, "{line}");
        }
        let need = |dtype| {
            element(dtype)
                .ok_or_else(|| Error::op("custom", format!("kernels in WGSL take F32, I32 and U32, not {dtype}")))
        };
        let names: Vec<String> = (0..inputs.len()).map(|i| format!("in{i}")).chain(["out".to_string()]).collect();
        let all = || inputs.iter().chain([&output]).zip(&names);
        for (binding, (&(dtype, _), name)) in all().enumerate() {
            let access = if binding < inputs.len() { "read" } else { "read_write" };
            let ty = need(dtype)?;
            let _ = writeln!(text, "@group(0) @binding({binding}) var<storage, {access}> {name}: array<{ty}>;");
        }
        let ranks: usize = all().map(|(&(_, rank), _)| usize::from(rank)).sum();
        let scalars_at = ranks + names.len();
        let words = scalars_at + usize::from(scalars);
        let _ = write!(
            text,
            "@group(0) @binding({}) var<uniform> tallow_block: array<vec4<u32>, {}>;\n\
             fn tallow_word(i: u32) -> u32 {{\n    return tallow_block[i >> 2u][i & 3u];\n}}\n\
             fn tallow_dim(first: u32, rank: u32, axis: u32) -> u32 {{\n    if (axis >= rank) {{\n        return 1u;\n    }}\n    \
             return tallow_word(first + axis);\n}}\n\
             fn param(i: u32) -> f32 {{\n    if (i >= {scalars}u) {{\n        return 0.0;\n    }}\n    \
             return bitcast<f32>(tallow_word({scalars_at}u + i));\n}}\n",
            names.len(),
            words.div_ceil(4)
        );
        let mut first = 0;
        for (i, (&(_, rank), name)) in all().enumerate() {
            let _ = write!(
                text,
                "fn {name}_dim(axis: u32) -> u32 {{\n    return tallow_dim({first}u, {rank}u, axis);\n}}\n\
                 fn {name}_len() -> u32 {{\n    return tallow_word({}u);\n}}\n",
                ranks + i
            );
            first += usize::from(rank);
        }
        let before = text.lines().count();
        let mut lines = 0;
        for line in user.lines() {
            text += if directive(line) { "" } else { line };
            text.push('\n');
            lines += 1;
        }
        if matches!(wgsl, Wgsl::Elements(_)) {
            text += ELEMENTS;
        }
        Ok(Self { text, before, lines })
    }
}

/// Kernels that have been found good, so that each is judged once.
#[derive(Default)]
pub struct Checked(Mutex<FxHashSet<(u64, SmallVec<[DType; 4]>)>>);

impl Checked {
    /// Entries kept, before all are forgotten.
    const MOST: usize = 4096;

    /// Whether the kernel runs on operands of these dtypes; if not, why.
    ///
    /// # Errors
    /// Where it has no source in WGSL, a dtype is not of 32 bits, or the source does not compile.
    pub fn check(&self, custom: &Custom, inputs: &[DType], output: DType, target: &Target) -> Result<()> {
        let key = (custom.id(), inputs.iter().copied().chain([output]).collect());
        if self.0.lock().contains(&key) {
            return Ok(());
        }
        check(custom, inputs, output, target)?;
        let mut known = self.0.lock();
        if known.len() >= Self::MOST {
            known.clear();
        }
        known.insert(key);
        Ok(())
    }
}

fn check(custom: &Custom, inputs: &[DType], output: DType, target: &Target) -> Result<()> {
    let name = custom.name();
    let refuse = |message: String| Err(Error::op("custom", format!("'{name}' {message}")));
    let wgsl = custom.wgsl().ok_or_else(|| custom.missing("WGSL"))?;
    if let Some(dtype) = inputs.iter().chain([&output]).find(|&&dtype| element(dtype).is_none()) {
        return refuse(format!(
            "is written in WGSL, which takes F32, I32 and U32 and not {dtype}: convert with to_dtype"
        ));
    }
    // Ranks and scalars are numbers in the source: whether it compiles does not hang on them.
    let ranked: SmallVec<[(DType, u8); 4]> = inputs.iter().map(|&dtype| (dtype, 1)).collect();
    let source = Source::new(wgsl, &ranked, (output, 1), 1, true)?;
    #[cfg(feature = "check-wgsl")]
    check::compile(name, wgsl, &source, inputs.len(), target)?;
    #[cfg(not(feature = "check-wgsl"))]
    let _ = (name, source, target);
    Ok(())
}
