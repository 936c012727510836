//! Convolutions by blocked matrix products, without an im2col matrix.
//!
//! The output is a product of filters and patches, cut into tiles: some output channels of a group by some positions. The
//! panels that the micro-kernel reads are packed a part of the depth at a time, patches straight from the input, with what
//! is padding left zero ([`patches`], [`tile`]); a tile's epilogue runs over its sums while they are in cache. Where a
//! stride or the direction of packing asks for it, the input is first brought into planes from which patches are copied in
//! long runs ([`planes`]). Zeros between the input's elements (transposed convolutions, gradients) are never multiplied: such
//! a convolution is one of its own for each remainder ([`geometry`]). Depthwise filters have a loop of their own
//! ([`depthwise`]).

mod depthwise;
mod direct;
mod geometry;
mod patches;
mod planes;
mod tile;
mod vectors;

use smallvec::SmallVec;
use tallow_graph::kernel::ConvKernel;
use tallow_graph::{DType, Error, Result};

use super::class::{Class, Num};
use super::contract::{copy_out, loader};
use super::expr::Block;
use super::scratch::{self, FirstError};
use super::step::StepRun;
use super::walk::{Bound, Nest, Words, bind, elements};
use crate::Isa;
use crate::gemm::Element;
use crate::isa::Level;
use geometry::Geometry;
use planes::{Frame, Planes};
use tile::Job;

/// Elements that are worth a thread's while to copy.
const GRAIN: usize = 16 << 10;

/// A convolution, compiled.
#[derive(Debug)]
pub(crate) struct Conv {
    /// Of the sums.
    class: Class,
    /// Bring the operands into the class.
    input: Block,
    filter: Block,
    epilogue: Block,
}

/// Whether the CPU runs this kernel.
pub(crate) fn supports(kernel: &ConvKernel) -> bool {
    let float = |dtype: DType| dtype.is_float() && !dtype.is_quantized();
    let (input, filter) = (kernel.input.1, kernel.filter.1);
    float(input) && float(filter) && Class::of(input) == Class::of(filter) && (1..=3).contains(&kernel.spatial)
}

/// Compiles a convolution.
pub(crate) fn compile(kernel: &ConvKernel) -> Result<Conv> {
    let class = Class::of(kernel.input.1);
    let acc = if class == Class::F64 { DType::F64 } else { DType::F32 };
    Ok(Conv {
        class,
        input: loader(kernel.input.1, class)?,
        filter: loader(kernel.filter.1, class)?,
        epilogue: Block::compile(&kernel.epilogue, &kernel.operands, Some(acc))?,
    })
}

/// Runs a convolution.
pub(crate) fn run(step: &StepRun<'_>, kernel: &ConvKernel, code: &Conv) -> Result<()> {
    match code.class {
        Class::F64 => run_as::<f64>(step, kernel, code),
        _ => run_as::<f32>(step, kernel, code),
    }
}

fn too_large() -> Error {
    Error::msg("a convolution needs more working memory than can be addressed")
}

/// Parts of one piece of working memory, each aligned.
#[derive(Default)]
struct Parts(usize);

impl Parts {
    /// `elements` elements of `size` bytes more: their offset.
    fn add(&mut self, elements: Option<usize>, size: usize) -> Result<usize> {
        let at = self.0;
        let bytes = elements.and_then(|n| n.checked_mul(size)).and_then(|n| n.checked_next_multiple_of(64));
        self.0 = bytes.and_then(|bytes| bytes.checked_add(at)).ok_or_else(too_large)?;
        Ok(at)
    }
}

/// Whether vectors are read and written by masks.
fn masked<T: Num>(isa: Isa) -> bool {
    T::CLASS == Class::F32 && matches!(isa.level(), Level::Avx512 | Level::Avx512Vnni)
}

/// An operand's strides.
fn strides_of(bound: &Bound<'_>) -> [i64; 6] {
    let mut strides = [0; 6];
    strides[..bound.strides.len()].copy_from_slice(bound.strides);
    strides
}

/// The strides of elements in row-major order.
fn in_order(sizes: &[i64]) -> [i64; 6] {
    let mut strides = [0; 6];
    let mut step = 1;
    for (stride, &size) in strides[..sizes.len()].iter_mut().zip(sizes).rev() {
        *stride = step;
        step *= size;
    }
    strides
}

/// The strides of the spatial axes, of which there are three.
fn spatial_of(strides: &[i64; 6], spatial: usize) -> [i64; 3] {
    let mut three = [0; 3];
    three[3 - spatial..].copy_from_slice(&strides[3..3 + spatial]);
    three
}

fn run_as<T: Num + Element>(step: &StepRun<'_>, kernel: &ConvKernel, code: &Conv) -> Result<()> {
    let spatial = usize::from(kernel.spatial);
    let mut words = Words(step.words);
    let geometry = Geometry::read(&mut words, spatial)?;
    let Geometry { samples, groups, channels, outputs, .. } = geometry;
    let sizes = |lead: [usize; 3], of: &dyn Fn(&geometry::Axis) -> i64| -> SmallVec<[i64; 6]> {
        lead.into_iter().map(|n| n as i64).chain(geometry.axes[3 - spatial..].iter().map(of)).collect()
    };
    let input_sizes = sizes([samples, groups, channels], &|axis| axis.size);
    let filter_sizes = sizes([groups, outputs, channels], &|axis| axis.taps);
    let out_sizes = sizes([samples, groups, outputs], &|axis| axis.out);
    let inputs = elements(&input_sizes)?;
    let filters = elements(&filter_sizes)?;
    let total = elements(&out_sizes)?;
    let input = bind(step.input(kernel.input.0)?, kernel.input.1, &input_sizes, words.take(4 + spatial)?)?;
    let filter = bind(step.input(kernel.filter.0)?, kernel.filter.1, &filter_sizes, words.take(4 + spatial)?)?;
    let operands = step.bind(&kernel.operands, &out_sizes, &mut words)?;
    let out = step.output_for(0, code.epilogue.dtype, total)?;
    if total == 0 {
        return Ok(());
    }

    let size = size_of::<T>();
    let own = |dtype: DType, bound: &Bound<'_>| code.class.is_stored_as(dtype) && bound.aligned;
    let input_is_own = own(kernel.input.1, &input);
    let filter_is_own = own(kernel.filter.1, &filter);
    let x_strides = if input_is_own { strides_of(&input) } else { in_order(&input_sizes) };
    let w_strides = if filter_is_own { strides_of(&filter) } else { in_order(&filter_sizes) };
    let mut x_spatial = spatial_of(&x_strides, spatial);
    let mut w_spatial = spatial_of(&w_strides, spatial);
    let geometry = geometry.flattened(&mut x_spatial, &mut w_spatial);
    let phases = geometry.phases();
    let steps = geometry.axes.map(|axis| axis.step());
    let gaps = geometry.axes.map(|axis| axis.gap());
    // Patches are packed along the positions or along the taps, whichever makes the longer runs.
    let last = geometry.axes[2];
    let by_taps = last.taps > last.out;
    let split = if by_taps { gaps[2] } else { steps[2] };
    let frame = Frame::new(&geometry, &phases, split as usize).ok_or_else(too_large)?;
    let inside = frame.is_inside(&geometry);
    let in_runs = split * x_spatial[2] == 1;
    // Straight from the input: what is packed lies in runs, or is read once. Along the taps, all of it has to be there.
    let in_place = if by_taps { in_runs && inside } else { in_runs || last.taps == 1 };
    let direct = !by_taps && (!in_place || in_runs) && direct::fits(T::kernel(step.isa), &geometry, &phases);
    let in_place = in_place && (inside || !direct);
    let depthwise = depthwise::fits::<T>(&geometry, by_taps, &phases);
    let plain = code.epilogue.is_acc && code.class.is_stored_as(code.epilogue.dtype);
    // One phase: positions of a sample and channel follow one another.
    let whole = phases.len() == 1;

    let mut parts = Parts::default();
    let input_at = parts.add(Some(if input_is_own { 0 } else { inputs }), size)?;
    let filter_at = parts.add(Some(if filter_is_own { 0 } else { filters }), size)?;
    let planes = if in_place || depthwise { Some(0) } else { frame.plane().checked_mul(samples * groups * channels) };
    let planes_at = parts.add(planes, size)?;
    let sums_at = parts.add(Some(if whole || plain { 0 } else { total }), size)?;
    scratch::with(scratch::STEP, parts.0, |memory| {
        let part = |at: usize| memory.wrapping_add(at);
        let convert = |bound: &Bound<'_>, block: &Block, sizes: &[i64], at: usize, own: bool| {
            if own {
                return Ok::<_, Error>(bound.at.cast_const().cast::<T>());
            }
            let to = Memory(part(at));
            let nest = Nest { isa: step.isa, block, sizes, operands: &[*bound], scalars: &[] };
            let failed = FirstError::default();
            step.pool.run_ranges(elements(sizes)?, GRAIN, &|range| {
                let place = to.at().wrapping_add(range.start * size);
                // SAFETY: this task's own part of the scratch memory.
                failed.note(unsafe { copy_out(&nest, range.start, range.len(), place, size) });
            });
            failed.done()?;
            Ok(part(at).cast_const().cast::<T>())
        };
        let x = convert(&input, &code.input, &input_sizes, input_at, input_is_own)?;
        let w = convert(&filter, &code.filter, &filter_sizes, filter_at, filter_is_own)?;
        let lead = |strides: &[i64; 6]| [strides[0], strides[1], strides[2]];
        let source = Source { at: x, strides: lead(&x_strides), spatial: x_spatial };
        let weights = Source { at: w, strides: lead(&w_strides), spatial: w_spatial };
        let output = Output {
            at: out.at,
            sums: if plain { out.at } else { part(sums_at) }.cast::<T>(),
            plain,
            whole,
            epilogue: &code.epilogue,
            sizes: &out_sizes,
            operands: &operands,
        };
        if depthwise {
            return depthwise::run(step, &geometry, &phases[0], source, weights, &output);
        }
        let planes = if in_place {
            let sizes = geometry.axes.map(|axis| axis.size);
            Planes {
                at: source.at,
                strides: source.strides,
                spatial: source.spatial,
                origin: [0; 3],
                split: 1,
                lane: 0,
                sizes: (!inside).then_some(sizes),
            }
        } else {
            let to = Memory(part(planes_at));
            let plane = frame.plane();
            // Rows of all channels lie side by side where they are read as they lie: they are read channel after channel.
            let row = frame.row();
            let (channel, rows) = if direct { (row, channels * row) } else { (plane, row) };
            let apart = [frame.length[1] * rows, rows];
            step.pool.run_ranges(samples * groups * channels, GRAIN / plane.max(1), &|range| {
                for at in range {
                    let index = [at / (groups * channels), at / channels % groups, at % channels];
                    // SAFETY: `bind` checked the input; the plane is this task's own.
                    unsafe {
                        let to = to.at().cast::<T>().add(at / channels * channels * plane + at % channels * channel);
                        frame.fill(step.isa, &geometry, (source.plane(index), source.spatial), (to, apart));
                    }
                }
            });
            Planes {
                at: part(planes_at).cast_const().cast(),
                strides: [groups * channels * plane, channels * plane, channel].map(|n| n as i64),
                spatial: [apart[0], apart[1], 1].map(|n| n as i64),
                origin: frame.origin,
                split,
                lane: frame.lane as i64,
                sizes: None,
            }
        };
        let job = Job {
            step,
            geometry: &geometry,
            phases: &phases,
            steps,
            gaps,
            by_taps,
            direct,
            masked: in_place && !by_taps && masked::<T>(step.isa) && geometry.is_same_grid(&phases, source.spatial),
            planes,
            filter: weights,
            output: &output,
        };
        job.run()?;
        if plain || whole {
            return Ok(());
        }
        output.finish(step, total)
    })
}

/// An address that threads share: each uses its own part.
struct Memory(*mut u8);

// SAFETY: see the type.
unsafe impl Sync for Memory {}

impl Memory {
    /// The address. (A closure that names the field would capture the bare pointer.)
    fn at(&self) -> *mut u8 {
        self.0
    }
}

/// An operand in its class: three leading strides (of sample, group, channel, or of group, output, channel), and those of
/// the spatial axes.
#[derive(Clone, Copy)]
struct Source<T> {
    at: *const T,
    strides: [i64; 3],
    spatial: [i64; 3],
}

// SAFETY: memory that is only read while the step runs.
unsafe impl<T> Sync for Source<T> {}

impl<T> Source<T> {
    /// The first element of a plane.
    fn plane(&self, index: [usize; 3]) -> *const T {
        let offset: i64 = index.iter().zip(&self.strides).map(|(&i, s)| i as i64 * s).sum();
        self.at.wrapping_offset(offset as isize)
    }
}

/// Where results go.
struct Output<'a, T> {
    at: *mut u8,
    /// The sums [samples, groups, outputs, positions], where they are stored before the epilogue: the output itself, if
    /// there is nothing to do to them.
    sums: *mut T,
    /// The sums are the results.
    plain: bool,
    /// There is one phase.
    whole: bool,
    epilogue: &'a Block,
    sizes: &'a [i64],
    operands: &'a [Bound<'a>],
}

// SAFETY: tasks write apart from one another.
unsafe impl<T> Sync for Output<'_, T> {}

impl<T: Num> Output<'_, T> {
    /// The epilogue over all sums.
    fn finish(&self, step: &StepRun<'_>, total: usize) -> Result<()> {
        let failed = FirstError::default();
        step.pool.run_ranges(total, GRAIN, &|range| {
            failed.note(self.epilogue(step, 1, |rows| {
                // SAFETY: the sums are there, and the range is this task's own.
                unsafe { rows.row(range.start, self.sums.add(range.start).cast_const(), range.len()) }
            }));
        });
        failed.done()
    }
}
