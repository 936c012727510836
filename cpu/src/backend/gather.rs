//! Whole rows by index: embeddings, index_select.

use tallow_graph::kernel::GatherKernel;
use tallow_graph::{DType, Error, Result};

use super::class::{Class, Num, with_class};
use super::exec::slice_mut;
use super::scratch::FirstError;
use super::step::StepRun;
use super::walk::{Words, bind};
use crate::quant;

/// Bytes of output that are worth a thread's while.
const GRAIN: usize = 64 << 10;

/// Whether the CPU runs this kernel.
pub(crate) fn supports(kernel: &GatherKernel) -> bool {
    let output = if kernel.source.is_quantized() { DType::F32 } else { kernel.source };
    kernel.ids.is_int() && kernel.output == output
}

/// Runs a gather.
pub(crate) fn run(step: &StepRun<'_>, kernel: &GatherKernel) -> Result<()> {
    let mut words = Words(step.words);
    let [outer, ids, rows, inner] = [words.size()?, words.size()?, words.size()?, words.size()?];
    let source_words = words.take(3)?;
    let id_words = words.take(2)?;
    let overflow = || Error::msg(format!("a gather of {outer} x {ids} x {inner} elements overflows"));
    let total = outer.checked_mul(ids).and_then(|n| n.checked_mul(inner)).ok_or_else(overflow)?;
    if total == 0 {
        return Ok(());
    }
    let out = step.output_for(0, kernel.output, total)?;
    let (source, index) = (step.input(0)?, step.input(1)?);
    let id_sizes = [ids as i64];
    let id_at = bind(index, kernel.ids, &id_sizes, id_words)?;
    let quantized = kernel.source.is_quantized();
    let row_bytes = kernel
        .source
        .bytes_for(inner)
        .ok_or_else(|| Error::msg(format!("rows of {inner} elements are not whole blocks of {}", kernel.source)))?;
    let sizes = [outer as i64, rows as i64, if quantized { 1 } else { inner as i64 }];
    let strides;
    let first = if quantized {
        // Counted in rows: the blocks have no elements of their own to point at.
        let offset = source_words[0];
        let skipped = usize::try_from(offset).ok().filter(|offset| offset.is_multiple_of(inner) && outer == 1);
        let skipped = skipped.ok_or_else(|| Error::msg("a gather from the middle of a quantized row"))? / inner;
        let end = skipped.checked_add(rows).and_then(|rows| rows.checked_mul(row_bytes));
        if end.is_none_or(|end| end > source.len) || source_words[2] != inner as i64 {
            return Err(Error::msg(format!("a gather reads rows {skipped}..{} of too short a weight", skipped + rows)));
        }
        source.at.cast_const().wrapping_add(skipped * row_bytes)
    } else {
        strides = [source_words[0], source_words[1], source_words[2], 1];
        bind(source, kernel.source, &sizes, &strides)?.at.cast_const()
    };
    let (first, out_row) = (Shared(first), inner * kernel.output.size_in_bytes());
    let failed = FirstError::default();
    step.pool.run_ranges(outer * ids, GRAIN / out_row.max(1), &|range| {
        let first = &first;
        for item in range {
            let (o, i) = (item / ids, item % ids);
            // SAFETY: `bind` checked all ids; a file's bytes need not be aligned.
            let (id, wide) = with_class!(Class::of(kernel.ids), T => unsafe {
                let at = id_at.at().cast::<T>().wrapping_offset(i as isize * id_at.strides[0] as isize);
                let id = at.read_unaligned();
                (usize::try_from(id.to_i128()).ok().filter(|&id| id < rows), id.to_i128())
            });
            let to = out.at().wrapping_add(item * out_row);
            let Some(id) = id else {
                // SAFETY: the output has room for all rows, and each belongs to one item.
                unsafe { slice_mut::<u8>(to, out_row) }.fill(0);
                if !kernel.ids.is_hole(wide) {
                    step.fault.set("gather", || format!("index {wide} is outside 0..{rows}"));
                }
                continue;
            };
            // SAFETY: rows were checked against the source's length, and the output as above.
            unsafe {
                if quantized {
                    let row = std::slice::from_raw_parts(first.0.wrapping_add(id * row_bytes), row_bytes);
                    failed.note(quant::dequantize_row(kernel.source, row, slice_mut(to, inner)));
                } else {
                    let offset = o as i64 * source_words[1] + id as i64 * source_words[2];
                    let offset = offset as isize * kernel.source.size_in_bytes() as isize;
                    std::ptr::copy_nonoverlapping(first.0.wrapping_offset(offset), to, row_bytes);
                }
            }
        }
    });
    failed.done()
}

/// An address that threads share to read.
struct Shared(*const u8);
// SAFETY: it is only read, and nobody writes to a step's inputs while it runs.
unsafe impl Sync for Shared {}
