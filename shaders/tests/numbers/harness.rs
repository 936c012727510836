//! Runs one kernel on the reference and on the device, and compares.

use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};
use tallow_graph::{
    Args, Backend, Buffer, DType, Element, Expr, HostBytes, Inst, Kernel, Program, Result, Run, Scalar, Step,
    kernel::{Layout, Operand},
    reference::Reference,
};
use tallow_wgpu::{Options, WgpuBackend};

/// The last adapter (a software one, where there is one), or `None` with a line that says so.
pub fn device() -> Option<&'static WgpuBackend> {
    static DEVICE: OnceLock<Option<WgpuBackend>> = OnceLock::new();
    DEVICE
        .get_or_init(|| {
            let Some(index) = tallow_wgpu::adapters_blocking().len().checked_sub(1) else {
                eprintln!("skipped: wgpu: no adapter");
                return None;
            };
            Some(WgpuBackend::open_blocking(index, Options::default()).unwrap())
        })
        .as_ref()
}

/// A stream of numbers that looks random enough (SplitMix64).
pub struct Noise(pub u64);

impl Noise {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// In [-2, 2).
    pub fn float(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 51) as f64 - 2.0
    }

    /// Elements of a plain dtype: floats in [-2, 2), small integers.
    pub fn elements(&mut self, dtype: DType, n: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..n {
            put(dtype, if dtype.is_float() { self.float() } else { (self.bits() % 100) as f64 }, &mut out);
        }
        out
    }

    /// Rows of a quantized type with scales of moderate size.
    pub fn blocks(&mut self, dtype: DType, elements: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..elements / dtype.block_elements() {
            let mut block: Vec<u8> = (0..dtype.block_bytes()).map(|_| self.bits() as u8).collect();
            let scales: &[usize] = match dtype {
                DType::Q4_1 | DType::Q4K => &[0, 2],
                DType::Q6K => &[208],
                _ => &[0],
            };
            for &at in scales {
                let scale = half::f16::from_f64(self.float() * 0.02);
                block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
            }
            out.extend(block);
        }
        out
    }
}

/// Appends a value of any dtype that the reference knows.
pub fn put(dtype: DType, value: f64, out: &mut Vec<u8>) {
    match dtype {
        DType::U8 => (value as u8).put(out),
        DType::I8 => (value as i8).put(out),
        DType::U16 => (value as u16).put(out),
        DType::I16 => (value as i16).put(out),
        DType::U32 => (value as u32).put(out),
        DType::I32 => (value as i32).put(out),
        DType::U64 => (value as u64).put(out),
        DType::I64 => (value as i64).put(out),
        DType::BF16 => half::bf16::from_f64(value).put(out),
        DType::F16 => half::f16::from_f64(value).put(out),
        DType::F32 => (value as f32).put(out),
        other => panic!("{other}"),
    }
}

/// The values of a buffer.
pub fn take(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks_exact(dtype.size_in_bytes())
        .map(|b| match dtype {
            DType::U8 => u8::take(b).to_f64(),
            DType::I8 => i8::take(b).to_f64(),
            DType::U16 => u16::take(b).to_f64(),
            DType::I16 => i16::take(b).to_f64(),
            DType::U32 => u32::take(b).to_f64(),
            DType::I32 => i32::take(b).to_f64(),
            DType::U64 => u64::take(b).to_f64(),
            DType::I64 => i64::take(b).to_f64(),
            DType::BF16 => Element::to_f64(half::bf16::take(b)),
            DType::F16 => Element::to_f64(half::f16::take(b)),
            DType::F32 => f32::take(b).to_f64(),
            other => panic!("{other}"),
        })
        .collect()
}

/// An input's bytes; quantized ones are packed as rows of so many elements.
#[derive(Clone)]
pub enum Input {
    Plain(Vec<u8>),
    Packed(DType, usize, Vec<u8>),
}

/// How far apart results may be: `absolute + relative * |expected|`; with `scaled`, relative to the output's RMS too.
#[derive(Clone, Copy)]
pub struct Tolerance {
    pub relative: f64,
    pub absolute: f64,
    pub scaled: f64,
}

pub const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0, scaled: 0.0 };

pub const fn relative(relative: f64, absolute: f64) -> Tolerance {
    Tolerance { relative, absolute, scaled: 0.0 }
}

pub const fn scaled(scaled: f64) -> Tolerance {
    Tolerance { relative: 0.0, absolute: 1e-30, scaled }
}

fn upload(backend: &dyn Backend, input: &Input) -> Buffer {
    match input {
        Input::Plain(bytes) => {
            let buffer = backend.allocate(bytes.len() as u64).unwrap();
            backend.write(&buffer, 0, bytes).unwrap();
            buffer
        }
        Input::Packed(dtype, cols, bytes) => {
            let rows = bytes.len() / dtype.bytes_for(*cols).unwrap();
            let source: HostBytes = Arc::new(bytes.clone());
            backend.pack(*dtype, rows, *cols, source, 0..bytes.len()).unwrap()
        }
    }
}

/// Runs a kernel with outputs that hold `outputs` before.
pub fn run(
    backend: &dyn Backend,
    implementation: u32,
    kernel: &Kernel,
    inputs: &[Input],
    outputs: &[Vec<u8>],
    words: &[i64],
    scalars: &[Scalar],
) -> Result<Vec<Vec<u8>>> {
    let mut buffers: Vec<Buffer> = inputs.iter().map(|input| upload(backend, input)).collect();
    buffers.extend(outputs.iter().map(|bytes| upload(backend, &Input::Plain(bytes.clone()))));
    let n = inputs.len() as u32;
    let last = buffers.len() as u32;
    let offered = backend.lower(kernel, words);
    let scratch = offered.iter().find(|i| i.id == implementation).map_or(0, |i| i.scratch);
    if scratch > 0 {
        // With contents that nothing should rely on.
        buffers.push(upload(backend, &Input::Plain(vec![0xa5; scratch as usize])));
    }
    let step = Step {
        kernel: Arc::new(kernel.clone()),
        implementation,
        inputs: (0..n).collect(),
        outputs: (n..last).collect(),
        in_place: false,
        scratch: (scratch > 0).then_some(last),
        after: SmallVec::new(),
    };
    let program = Program { steps: vec![step], buffers: buffers.len() };
    let args = [Args { words: 0..words.len() as u32, scalars: 0..scalars.len() as u32 }];
    let prepared = backend.prepare(&program)?;
    backend.submit(&*prepared, Run { program: &program, buffers: &buffers, args: &args, words, scalars })?;
    buffers[inputs.len()..last as usize]
        .iter()
        .map(|buffer| pollster::block_on(backend.read(buffer, 0..buffer.bytes())))
        .collect()
}

/// Compares one output.
pub fn compare(name: &str, dtype: DType, got: &[u8], want: &[u8], tolerance: Tolerance) {
    let (got, want) = (take(dtype, got), take(dtype, want));
    assert_eq!(got.len(), want.len(), "{name}");
    let finite: Vec<f64> = want.iter().copied().filter(|v| v.is_finite()).collect();
    let rms = (finite.iter().map(|v| v * v).sum::<f64>() / finite.len().max(1) as f64).sqrt();
    for (i, (&g, &w)) in got.iter().zip(&want).enumerate() {
        let same = if w.is_finite() && g.is_finite() {
            (g - w).abs() <= tolerance.absolute + tolerance.relative * w.abs() + tolerance.scaled * rms
        } else {
            g == w || (g.is_nan() && w.is_nan())
        };
        assert!(same, "{name}: element {i} of {} is {g}, not {w} (rms {rms})", got.len());
    }
}

/// Runs the kernel in every implementation, and compares all outputs with the reference's.
pub fn check(
    name: &str,
    kernel: &Kernel,
    inputs: &[Input],
    outputs: &[(DType, usize)],
    words: &[i64],
    scalars: &[Scalar],
    tolerance: Tolerance,
) {
    let Some(device) = device() else { return };
    let before: Vec<Vec<u8>> = outputs.iter().map(|&(dtype, n)| vec![0x3c; n * dtype.size_in_bytes()]).collect();
    let want = run(&Reference::default(), 0, kernel, inputs, &before, words, scalars).unwrap();
    check_against(device, name, kernel, inputs, outputs, words, scalars, &want, tolerance);
}

/// Runs the kernel in every implementation, and compares with given results.
#[allow(clippy::too_many_arguments, reason = "one description of a run")]
pub fn check_against(
    device: &WgpuBackend,
    name: &str,
    kernel: &Kernel,
    inputs: &[Input],
    outputs: &[(DType, usize)],
    words: &[i64],
    scalars: &[Scalar],
    want: &[Vec<u8>],
    tolerance: Tolerance,
) {
    let before: Vec<Vec<u8>> = outputs.iter().map(|&(dtype, n)| vec![0x3c; n * dtype.size_in_bytes()]).collect();
    let implementations = device.lower(kernel, words);
    assert!(!implementations.is_empty(), "{name}: no implementation");
    for implementation in implementations {
        let start = std::time::Instant::now();
        let got = run(device, implementation.id, kernel, inputs, &before, words, scalars);
        let got = got.unwrap_or_else(|error| panic!("{name} #{}: {error}", implementation.id));
        if std::env::var_os("TALLOW_TIMES").is_some() {
            eprintln!("{:6.2} s  {name} #{}", start.elapsed().as_secs_f64(), implementation.id);
        }
        for ((got, want), &(dtype, _)) in got.iter().zip(want).zip(outputs) {
            compare(&format!("{name} #{}", implementation.id), dtype, got, want, tolerance);
        }
    }
}

pub fn operand(input: u8, dtype: DType, layout: Layout) -> Operand {
    Operand { input: Some(input), dtype, layout }
}

pub fn expr(code: &[(Inst, DType)]) -> Expr {
    Expr { code: code.iter().map(|c| c.0).collect(), dtypes: code.iter().map(|c| c.1).collect() }
}
