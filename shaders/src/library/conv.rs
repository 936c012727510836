//! Convolutions, each with its epilogue: an implicit matrix product in tiles, and loops without barriers.
//!
//! Uniform block: the step's words, its scalars, then positions (of a sample and channel), columns (positions of all
//! samples), taps, depth (taps times channels), and the number of invocations or workgroups that have work.

use super::{
    Shader, Target, address,
    code::{Access, Code, Rep, Slots, fill_words, inputs_of, param, per_word},
    entry, expr,
    preprocess::{Defines, expand},
    spread,
};
use smallvec::{SmallVec, smallvec};
use std::fmt::Write as _;
use tallow_graph::{
    DType, Error, Implementation, Result, Scalar,
    kernel::{ConvKernel, Layout},
};

/// Implementation numbers.
const TILES: u32 = 0;
const SERIAL: u32 = 1;
const SERIAL_4: u32 = 2;
/// For software devices: 4 columns of one output channel, and of 4.
const BLOCK: u32 = 3;
const BLOCK_4: u32 = 4;

/// Where everything stands among the words, after [samples, groups, channels, outputs].
struct Words {
    /// The first word of each axis.
    axes: Vec<usize>,
    input: usize,
    filter: usize,
    operands: Vec<usize>,
    total: usize,
}

impl Words {
    fn of(kernel: &ConvKernel) -> Self {
        let spatial = usize::from(kernel.spatial);
        let operand = 4 + spatial;
        let input = 4 + 7 * spatial;
        let operands = (0..kernel.operands.len()).map(|o| input + operand * (2 + o)).collect();
        Self {
            axes: (0..spatial).map(|a| 4 + 7 * a).collect(),
            input,
            filter: input + operand,
            operands,
            total: input + operand * (2 + kernel.operands.len()),
        }
    }
}

/// The sizes of a run.
struct Sizes {
    groups: u64,
    channels: u64,
    outputs: u64,
    positions: u64,
    columns: u64,
    taps: u64,
}

impl Sizes {
    /// `None` where they are no sizes, or more than 32 bits count.
    fn of(kernel: &ConvKernel, words: &[i64]) -> Option<Self> {
        let at = Words::of(kernel);
        let size = |i: usize| words.get(i).and_then(|&w| u64::try_from(w).ok());
        let product = |which: usize| at.axes.iter().try_fold(1u64, |n, &axis| n.checked_mul(size(axis + which)?));
        let positions = product(2)?;
        let sizes = Self {
            groups: size(1)?,
            channels: size(2)?,
            outputs: size(3)?,
            positions,
            columns: size(0)?.checked_mul(positions)?,
            taps: product(1)?,
        };
        let results = sizes.columns.checked_mul(sizes.groups)?.checked_mul(sizes.outputs)?;
        (results < 0xffff_0000 && sizes.taps.checked_mul(sizes.channels)? < 1 << 31).then_some(sizes)
    }

    /// Workgroups (of tiles) or invocations (of serial loops).
    fn work(&self, implementation: u32) -> u64 {
        match implementation {
            TILES => self.groups * self.outputs.div_ceil(64) * self.columns.div_ceil(64),
            _ => {
                let (tall, wide) = cut(implementation);
                self.groups * self.outputs.div_ceil(tall) * self.columns.div_ceil(wide)
            }
        }
    }
}

/// Output channels and columns that an invocation of the loops computes.
fn cut(implementation: u32) -> (u64, u64) {
    match implementation {
        SERIAL_4 => (4, 1),
        BLOCK => (1, 4),
        BLOCK_4 => (4, 4),
        _ => (1, 1),
    }
}

/// Inputs it binds.
pub fn inputs(kernel: &ConvKernel) -> usize {
    let named = usize::from(kernel.input.0.max(kernel.filter.0)) + 1;
    named.max(inputs_of(&kernel.operands))
}

/// The ways to run it.
pub fn implementations(kernel: &ConvKernel, words: &[i64], target: &Target) -> SmallVec<[Implementation; 2]> {
    let float = |dtype: DType| Rep::of(dtype) == Some(Rep::F32);
    let supported = float(kernel.input.1)
        && float(kernel.filter.1)
        && (1..=3).contains(&kernel.spatial)
        && !kernel.epilogue.dtypes.is_empty()
        && kernel.epilogue.dtypes.iter().all(|&d| Rep::of(d).is_some())
        && kernel.operands.iter().all(|o| o.input.is_none() || Rep::of(o.dtype).is_some());
    if !supported {
        return SmallVec::new();
    }
    let sizes = Sizes::of(kernel, words);
    // At 10 TFLOP/s, of what a tile computes beside what is asked for too.
    let cost = |tall: u64, wide: u64, gpu: f32, software: f32| {
        let work = sizes.as_ref().map_or(1.0, |s| {
            let results = s.groups * s.outputs.next_multiple_of(tall) * s.columns.next_multiple_of(wide);
            results as f32 * (s.taps * s.channels) as f32
        });
        1.0 + work * 2e-7 * if target.software { software } else { gpu }
    };
    let mut all = smallvec![
        Implementation { id: SERIAL, scratch: 0, cost: cost(1, 1, 10.0, 12.0) },
        Implementation { id: SERIAL_4, scratch: 0, cost: cost(4, 1, 5.0, 6.0) },
    ];
    if target.software {
        all.push(Implementation { id: BLOCK, scratch: 0, cost: cost(1, 4, 0.0, 9.0) });
        all.push(Implementation { id: BLOCK_4, scratch: 0, cost: cost(4, 4, 0.0, 3.0) });
    }
    if target.max_workgroup_invocations >= 256 && target.max_workgroup_storage >= 8192 {
        all.push(Implementation { id: TILES, scratch: 0, cost: cost(64, 64, 1.5, 100.0) });
    }
    all
}

/// The uniform block.
pub fn params(kernel: &ConvKernel, words: &[i64], scalars: &[Scalar], out: &mut Vec<u32>) -> Result<()> {
    let total = Words::of(kernel).total;
    let words = words.get(..total).ok_or_else(|| Error::op("conv", "the step brings too few words"))?;
    fill_words("conv", words, out)?;
    Slots::new(0, [&kernel.epilogue])?.fill(scalars, out)?;
    let sizes = Sizes::of(kernel, words);
    let sizes = sizes.ok_or_else(|| Error::op("conv", "2^32 results, or 2^31 products of each, or more: split it"))?;
    out.extend([sizes.positions, sizes.columns, sizes.taps, sizes.taps * sizes.channels].map(|n| n as u32));
    Ok(())
}

/// The grid.
pub fn grids(kernel: &ConvKernel, implementation: u32, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    let work = Sizes::of(kernel, words).map_or(0, |sizes| sizes.work(implementation));
    smallvec![spread(if implementation == TILES { work } else { work.div_ceil(64) }, target)]
}

/// The shader.
pub fn shader(kernel: &ConvKernel, implementation: u32, target: &Target) -> Result<Shader> {
    let spatial = usize::from(kernel.spatial);
    let at = Words::of(kernel);
    let slots = Slots::new(0, [&kernel.epilogue])?;
    let sizes_at = at.total + slots.words();
    let [positions, columns, taps, depth] = [0, 1, 2, 3].map(|i| param(sizes_at + i));
    let param_words = sizes_at + 4;
    let inputs = inputs(kernel);
    let mut code = Code::new(inputs, 1, param_words);
    let stored = kernel.epilogue.dtype().ok_or_else(|| Error::op("conv", "an empty expression"))?;
    if per_word(stored) > 1 {
        code.outputs[0] = Access::Atomic;
    }
    let mut body = places(spatial, &at);
    finish(&mut code, &mut body, kernel, &at, &slots, &positions)?;
    let mut defines = Defines::default();
    defines
        .set("OUTPUTS", param(3))
        .set("CHANNELS", param(2))
        .set("POSITIONS", &positions)
        .set("COLUMNS", &columns)
        .set("TAPS", &taps)
        .set("DEPTH", &depth)
        .set("X_CHANNEL", param(at.input + 3))
        .set("F_CHANNEL", param(at.filter + 3))
        .set("CT", cut(implementation).0)
        .set("LOAD_X", code.load(kernel.input.0, kernel.input.1)?)
        .set("LOAD_F", code.load(kernel.filter.0, kernel.filter.1)?);
    for a in 0..spatial {
        let word = |which: usize| param(at.axes[a] + which);
        defines
            .set(&format!("TAPS_{a}"), word(1))
            .set(&format!("SIZE_{a}"), signed(at.axes[a]))
            .set(&format!("DILATION_{a}"), signed(at.axes[a] + 5))
            .set(&format!("INPUT_DILATION_{a}"), signed(at.axes[a] + 6))
            .set(&format!("X_STRIDE_{a}"), param(at.input + 4 + a))
            .set(&format!("F_STRIDE_{a}"), param(at.filter + 4 + a))
            .flag(&format!("AXIS_{a}"), true);
    }
    defines.set("LAST_AXIS", spatial - 1);
    let groups = param(1);
    let outputs = param(3);
    if implementation == TILES {
        body += &expand("conv.wgsl", &defines)?;
        let all = format!("{groups} * (({outputs} + 63u) / 64u) * (({columns} + 63u) / 64u)");
        body +=
            &entry("main", 256, "", &format!("    if (group < {all}) {{\n        conv_tile(group, lid);\n    }}\n"));
    } else {
        let (tall, wide) = cut(implementation);
        let name = if wide > 1 { "conv_block" } else { "conv_serial" };
        body += &expand(&format!("{name}.wgsl"), &defines)?;
        let part = |of: &str, size: u64| format!("(({of} + {}u) / {size}u)", size - 1);
        let all = format!("{groups} * {} * {}", part(&outputs, tall), part(&columns, wide));
        let call = format!("    let t = group * 64u + lid;\n    if (t < {all}) {{\n        {name}(t);\n    }}\n");
        body += &entry("main", 64, "", &call);
    }
    code.body = body;
    Ok(Shader {
        label: format!("conv{spatial}d {} {implementation}", kernel.input.1),
        source: code.finish(target, false),
        entries: smallvec!["main"],
        inputs,
        outputs: 1,
        scratch: false,
        fault: false,
        param_words,
    })
}

/// A word as a signed number.
fn signed(i: usize) -> String {
    format!("bitcast<i32>({})", param(i))
}

/// `taps`' digits, innermost first: `let t2 = ..; .. let t0 = ..`.
fn digits(spatial: usize, of: &str, name: char, size: impl Fn(usize) -> String) -> String {
    let mut text = format!("    var rest = {of};\n");
    for a in (1..spatial).rev() {
        let size = size(a);
        let _ = write!(text, "    let {name}{a} = rest % {size};\n    rest = rest / {size};\n");
    }
    text + &format!("    let {name}0 = rest;\n")
}

/// `position`: where tap 0 of a position falls, on each axis of the dilated input; `input_place`: where a tap reads, and
/// whether it reads at all; `filter_place`; and the bases of input and filter.
fn places(spatial: usize, at: &Words) -> String {
    let axis = |a: usize, which: usize| at.axes[a] + which;
    let xyz = ["x", "y", "z"];
    let mut text = "fn position(p: u32) -> vec3<i32> {\n".to_string();
    text += &digits(spatial, "p", 'p', |a| param(axis(a, 2)));
    let starts: Vec<String> = (0..3)
        .map(|a| match a < spatial {
            true => format!("i32(p{a}) * {} - {}", signed(axis(a, 3)), signed(axis(a, 4))),
            false => "0".into(),
        })
        .collect();
    let _ = write!(text, "    return vec3<i32>({});\n}}\n", starts.join(", "));
    text += "fn input_place(p: vec3<i32>, tap: u32) -> vec2<u32> {\n";
    text += &digits(spatial, "tap", 't', |a| param(axis(a, 1)));
    text += "    var at = 0u;\n    var inside = true;\n";
    for (a, letter) in xyz.iter().enumerate().take(spatial) {
        let (size, dilation, input_dilation) = (signed(axis(a, 0)), signed(axis(a, 5)), signed(axis(a, 6)));
        let stride = param(at.input + 4 + a);
        let _ = write!(
            text,
            "    let x{a} = p.{letter} + i32(t{a}) * {dilation};\n    let q{a} = x{a} / {input_dilation};\n    inside = inside && x{a} \
             >= 0 && q{a} * {input_dilation} == x{a} && q{a} < {size};\n    at += bitcast<u32>(q{a}) * {stride};\n"
        );
    }
    text += "    return vec2<u32>(at, u32(inside));\n}\nfn filter_place(tap: u32) -> u32 {\n";
    text += &digits(spatial, "tap", 't', |a| param(axis(a, 1)));
    let sum: Vec<String> = (0..spatial).map(|a| format!("t{a} * {}", param(at.filter + 4 + a))).collect();
    let _ = write!(text, "    return {};\n}}\n", sum.join(" + "));
    let base = |first: usize| address(first, &["a".into(), "b".into()]);
    let _ = write!(text, "fn input_base(a: u32, b: u32) -> u32 {{\n    return {};\n}}\n", base(at.input));
    text + &format!("fn filter_base(a: u32, b: u32) -> u32 {{\n    return {};\n}}\n", base(at.filter))
}

/// `finish(group, output channel, column, sum)`: the epilogue, and the store.
fn finish(
    code: &mut Code,
    body: &mut String,
    kernel: &ConvKernel,
    at: &Words,
    slots: &Slots,
    positions: &str,
) -> Result<()> {
    let spatial = usize::from(kernel.spatial);
    let stored = kernel.epilogue.dtype().ok_or_else(|| Error::op("conv", "an empty expression"))?;
    let function =
        expr::function(code, "epilogue", &kernel.epilogue, &kernel.operands, Some(DType::F32), slots, at.total)?;
    let store = code.store(0, stored)?;
    let mut indices: Vec<String> = ["sample", "g", "row"].map(String::from).to_vec();
    indices.extend((0..spatial).map(|a| format!("o{a}")));
    let mut loads = Vec::new();
    let mut decoded = false;
    for &(o, position) in &function.arguments {
        let operand = &kernel.operands[usize::from(o)];
        let first = at.operands[usize::from(o)];
        let place = match operand.layout {
            Layout::Linear => format!("{} + place", param(first)),
            Layout::Scalar => param(first),
            Layout::Strided => {
                decoded = true;
                address(first, &indices)
            }
        };
        loads.push(match operand.input.filter(|_| !position) {
            None => place,
            Some(input) => format!("{}({place})", code.load(input, operand.dtype)?),
        });
    }
    loads.extend((0..function.accumulators).map(|_| "sum".to_string()));
    let _ = write!(
        body,
        "fn finish(g: u32, row: u32, q: u32, sum: f32) {{\n    let sample = q / {positions};\n    let p = q % {positions};\n    let \
         place = ((sample * {} + g) * {} + row) * {positions} + p;\n",
        param(1),
        param(3)
    );
    if decoded {
        *body += &digits(spatial, "p", 'o', |a| param(at.axes[a] + 2));
    }
    let _ = write!(body, "    {store}(place, {}({}));\n}}\n", function.name, loads.join(", "));
    Ok(())
}
