//! Walks a loop nest in blocks: points the places of an expression at memory or fills them, runs the code, stores.

use smallvec::SmallVec;
use tallow_graph::kernel::Layout;
use tallow_graph::{DType, Error, Result, Scalar};

use super::class::{Class, Num, with_class};
use super::exec::{self, slice, slice_mut};
use super::expr::{Block, Code, Load, Op};
use super::memory::Mem;
use super::nest_copy::{SHORT_ROW, dot, fill_short, gather, gather_short, pieces, scatter};
use super::scratch;
use crate::Isa;
use crate::prefetch::prefetch;

/// Most axes of a nest: outer and inner axes of a row kernel.
pub(crate) const MAX_AXES: usize = 16;

/// Words, read one after the other.
pub(crate) struct Words<'a>(pub &'a [i64]);

impl<'a> Words<'a> {
    /// The next `n`.
    pub fn take(&mut self, n: usize) -> Result<&'a [i64]> {
        let (head, tail) = self.0.split_at_checked(n).ok_or_else(|| Error::msg("a step brings too few words"))?;
        self.0 = tail;
        Ok(head)
    }

    /// The next one.
    pub fn one(&mut self) -> Result<i64> {
        self.take(1).map(|words| words[0])
    }

    /// The next `n`, as sizes.
    pub fn sizes(&mut self, n: usize) -> Result<&'a [i64]> {
        let sizes = self.take(n)?;
        if n > MAX_AXES || sizes.iter().any(|&size| size < 0) {
            return Err(Error::msg(format!("sizes {sizes:?} of a step are not sizes")));
        }
        Ok(sizes)
    }

    /// The next one, as a size.
    pub fn size(&mut self) -> Result<usize> {
        self.sizes(1).map(|sizes| sizes[0] as usize)
    }
}

/// Elements of a nest.
pub(crate) fn elements(sizes: &[i64]) -> Result<usize> {
    let count = sizes.iter().try_fold(1i64, |n, &size| n.checked_mul(size));
    count.map(|n| n as usize).ok_or_else(|| Error::msg(format!("sizes {sizes:?} overflow")))
}

/// An operand or output, bound to memory: the offset is part of `at`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound<'a> {
    /// The first element; meaningless without a buffer.
    pub at: *mut u8,
    pub offset: i64,
    pub strides: &'a [i64],
    /// Whether `at` is aligned for the dtype, so that slices may be made of it.
    pub aligned: bool,
}

// SAFETY: addresses that were checked to lie in the step's buffers; see `Mem`.
unsafe impl Send for Bound<'_> {}
// SAFETY: as above.
unsafe impl Sync for Bound<'_> {}

impl Bound<'_> {
    /// The first element's address. (See [`Mem::at`].)
    pub fn at(&self) -> *mut u8 {
        self.at
    }
}

/// Checks that a nest stays inside `mem`, and binds it. `words` are the offset, then the strides.
pub(crate) fn bind<'a>(mem: Mem, dtype: DType, sizes: &[i64], words: &'a [i64]) -> Result<Bound<'a>> {
    let (&offset, strides) = words.split_first().ok_or_else(|| Error::msg("an operand without words"))?;
    let (mut low, mut high) = (offset, offset);
    let mut empty = false;
    for (&size, &stride) in sizes.iter().zip(strides) {
        empty |= size == 0;
        let reach = size.saturating_sub(1).saturating_mul(stride);
        if reach < 0 { low = low.saturating_add(reach) } else { high = high.saturating_add(reach) }
    }
    let size = dtype.size_in_bytes();
    if !empty && (low < 0 || high >= (mem.len / size) as i64) {
        return Err(Error::msg(format!(
            "a step reads or writes elements {low}..={high} of a buffer of {} of {dtype}: an error of the planner, please \
             report it",
            mem.len / size
        )));
    }
    let at = if empty { mem.at } else { mem.at.wrapping_add(offset as usize * size) };
    Ok(Bound { at, offset, strides, aligned: (at as usize).is_multiple_of(size) })
}

/// An expression over a nest with everything it needs, for all threads to share.
pub(crate) struct Nest<'a> {
    pub isa: Isa,
    pub block: &'a Block,
    pub sizes: &'a [i64],
    /// In the order of the kernel's operands.
    pub operands: &'a [Bound<'a>],
    pub scalars: &'a [Scalar],
}

impl<'a> Nest<'a> {
    /// The operand that the expression is, if it is one unchanged that lies in memory as it is computed with.
    pub fn plain(&self) -> Option<(&'a Load, Bound<'a>)> {
        let ([Code { op: Op::Copy, .. }], [load]) = (self.block.code.as_slice(), self.block.loads.as_slice()) else {
            return None;
        };
        let bound = *self.operands.get(usize::from(load.operand))?;
        (load.input.is_some() && bound.aligned && load.class.is_stored_as(load.dtype)).then_some((load, bound))
    }
}

/// A thread's state while it walks a nest.
pub(crate) struct Walker<'a> {
    nest: &'a Nest<'a>,
    places: SmallVec<[*mut u8; 32]>,
    registers: *mut u8,
    /// Bytes of a register.
    step: usize,
    /// Elements of a register.
    capacity: usize,
    /// Whether the nest is so large that the next block is asked for while this one is computed.
    ahead: bool,
    /// Whether operands that are said to be linear are so in this nest.
    linear: bool,
    /// Whether some operand needs the position in the nest, not only the linear index.
    strided: bool,
}

/// Elements of a block, where the walk may be shorter.
pub(crate) fn block_size(block: &Block, elements: usize) -> usize {
    block.block.min(elements.next_multiple_of(8)).max(8)
}

impl<'a> Walker<'a> {
    /// Bytes of scratch for blocks of `block` elements: the registers and a staging area.
    pub fn scratch(code: &Block, block: usize) -> usize {
        (code.places + 1) * (block * 8).next_multiple_of(64)
    }

    /// Places at their registers; scalars are filled in once, for blocks of up to `block` elements.
    ///
    /// # Safety
    /// `registers` is [`Walker::scratch`] bytes, aligned to 64, that only this walker uses.
    pub unsafe fn new(nest: &'a Nest<'a>, registers: *mut u8, block: usize) -> Result<Self> {
        // SAFETY: the caller's.
        unsafe { Self::build(nest, registers, block, true) }
    }

    /// As [`Walker::new`] for a nest whose axes are not in the kernel's order: every operand goes by its strides.
    ///
    /// # Safety
    /// As [`Walker::new`].
    pub unsafe fn new_strided(nest: &'a Nest<'a>, registers: *mut u8, block: usize) -> Result<Self> {
        // SAFETY: the caller's.
        unsafe { Self::build(nest, registers, block, false) }
    }

    /// # Safety
    /// As [`Walker::new`].
    unsafe fn build(nest: &'a Nest<'a>, registers: *mut u8, block: usize, linear: bool) -> Result<Self> {
        let step = (block * 8).next_multiple_of(64);
        let places: SmallVec<[*mut u8; 32]> =
            (0..nest.block.places).map(|place| registers.wrapping_add((place + 1) * step)).collect();
        let mut walker =
            Walker { nest, places, registers, step, capacity: block, ahead: false, linear, strided: !linear };
        for &(number, class, place) in &nest.block.params {
            let scalar = *nest
                .scalars
                .get(usize::from(number))
                .ok_or_else(|| Error::msg(format!("a step brings no scalar {number}")))?;
            let at = walker.places[usize::from(place)];
            // SAFETY: a register of `block` elements.
            with_class!(class, T => unsafe { slice_mut::<T>(at, block) }.fill(T::from_scalar(scalar)));
        }
        for load in &nest.block.loads {
            let bound = walker.bound(load)?;
            match load.layout {
                Layout::Scalar => {
                    // SAFETY: the caller's; a scalar's strides are all 0, so any position will do.
                    unsafe { walker.fill(load, bound, &[0; MAX_AXES], block) };
                }
                Layout::Strided => walker.strided = true,
                Layout::Linear => walker.strided |= load.input.is_none() || !bound.aligned,
            }
        }
        Ok(walker)
    }

    fn bound(&self, load: &Load) -> Result<Bound<'a>> {
        let bound = self.nest.operands.get(usize::from(load.operand));
        bound.copied().ok_or_else(|| Error::msg("an expression loads an operand that the step lacks"))
    }

    /// Points an accumulator at `at`.
    pub fn set_acc(&mut self, acc: usize, at: *const u8) {
        if let Some(Some(place)) = self.nest.block.accs.get(acc) {
            self.places[usize::from(*place)] = at.cast_mut();
        }
    }

    /// The position of linear index `at`.
    pub fn position(&self, mut at: usize) -> [usize; MAX_AXES] {
        let mut index = [0; MAX_AXES];
        let sizes = self.nest.sizes;
        for (i, &size) in index[..sizes.len()].iter_mut().zip(sizes).rev() {
            let size = (size as usize).max(1);
            // The outermost axis is what remains, and most nests have no other.
            (*i, at) = if at < size { (at, 0) } else { (at % size, at / size) };
        }
        index
    }

    /// Computes elements `at..at + n` of the nest. The result lies in its place: at `direct`, where that is given.
    ///
    /// # Safety
    /// The elements are inside the nest; `n` is at most the block; the operands' memory is not written meanwhile, and
    /// `direct` has room for `n` elements of the result's class, aligned, that nobody else uses.
    pub unsafe fn run(&mut self, at: usize, n: usize, direct: Option<*mut u8>) -> *const u8 {
        let nest = self.nest;
        let index = if self.strided { self.position(at) } else { [0; MAX_AXES] };
        let result = usize::from(nest.block.result);
        let register = self.places[result];
        if let Some(direct) = direct {
            self.places[result] = direct;
        }
        let place = self.places[result];
        for load in &nest.block.loads {
            if let (true, Some(bound)) = (load.layout != Layout::Scalar, nest.operands.get(usize::from(load.operand))) {
                // SAFETY: the caller's.
                unsafe { self.load(load, *bound, at, &index, n) };
            }
        }
        if let ([Code { op: Op::Copy, a, .. }], None) = (nest.block.code.as_slice(), direct) {
            return self.places[usize::from(*a)];
        }
        // SAFETY: every place was pointed at a register or checked memory of `n` elements.
        unsafe { exec::run(nest.isa, &nest.block.code, &self.places, n) };
        self.places[result] = register;
        place
    }

    /// Says that the nest is too large for the caches: blocks are then asked for ahead of time, because between the
    /// short bursts of loads the processor sees no stream to follow.
    pub fn look_ahead(&mut self) {
        self.ahead = self.nest.block.code.len() > 1;
    }

    /// Elements that a run may have.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Elements `at..at + n` of the nest.
    ///
    /// # Safety
    /// As [`Walker::run`]; `T` is the result's class.
    pub unsafe fn values<T: Num>(&mut self, at: usize, n: usize) -> &[T] {
        debug_assert!(T::CLASS == self.nest.block.class && n <= self.capacity);
        // SAFETY: the caller's.
        unsafe { slice(self.run(at, n, None), n) }
    }

    /// Where elements `at..at + n` lie in memory, if the expression is one operand unchanged that has them in order.
    pub fn in_place(&self, at: usize, n: usize) -> Option<*const u8> {
        let (load, bound) = self.nest.plain()?;
        let inner = self.nest.sizes.len().checked_sub(1)?;
        match load.layout {
            Layout::Linear if self.linear => Some(bound.at.wrapping_add(at * load.dtype.size_in_bytes())),
            Layout::Strided if bound.strides[inner] == 1 => {
                let width = self.nest.sizes[inner] as usize;
                (at % width + n <= width).then(|| self.address(&bound, at))
            }
            _ => None,
        }
    }

    /// Where element `at` of a [plain](Nest::plain) operand lies.
    pub fn address(&self, bound: &Bound<'_>, at: usize) -> *const u8 {
        let offset = dot(&self.position(at), bound.strides);
        bound.at.wrapping_offset(offset as isize * self.nest.block.class.size() as isize)
    }

    /// Makes a load's place hold its elements: points at them where they lie in order, else copies.
    ///
    /// # Safety
    /// As [`Walker::run`].
    #[inline(always)]
    unsafe fn load(&mut self, load: &Load, bound: Bound<'_>, at: usize, index: &[usize; MAX_AXES], n: usize) {
        let place = usize::from(load.place);
        if load.layout == Layout::Linear && self.linear && load.input.is_some() && bound.aligned {
            let from = bound.at.wrapping_add(at * load.dtype.size_in_bytes());
            if load.class.is_stored_as(load.dtype) {
                self.places[place] = from;
                if self.ahead {
                    let bytes = n * load.class.size();
                    prefetch(from.wrapping_add(bytes), bytes);
                }
            } else {
                let out = self.register(place);
                // SAFETY: the operand's elements are inside its buffer, the register has room.
                unsafe { exec::widen(self.nest.isa, load.dtype, from, slice_mut(out, n)) };
            }
            return;
        }
        if let (Some(&stride), Some(&size)) = (bound.strides.last(), self.nest.sizes.last())
            && stride == 1
            && load.input.is_some()
            && bound.aligned
            && load.class.is_stored_as(load.dtype)
            && index[self.nest.sizes.len() - 1] + n <= size as usize
        {
            let offset = dot(&index[..], bound.strides);
            self.places[place] = bound.at.wrapping_offset(offset as isize * load.dtype.size_in_bytes() as isize);
            return;
        }
        // SAFETY: the caller's.
        unsafe { self.fill(load, bound, index, n) };
    }

    fn register(&mut self, place: usize) -> *mut u8 {
        let at = self.registers.wrapping_add((place + 1) * self.step);
        self.places[place] = at;
        at
    }

    /// Copies a load's elements into its register.
    ///
    /// # Safety
    /// As [`Walker::run`].
    unsafe fn fill(&mut self, load: &Load, bound: Bound<'_>, index: &[usize; MAX_AXES], n: usize) {
        let out = self.register(usize::from(load.place));
        // One element for all: a nest of no axes.
        let sizes = if load.layout == Layout::Scalar { &[] } else { self.nest.sizes };
        let short = sizes.len() > 1 && sizes[sizes.len() - 1] <= SHORT_ROW;
        if load.input.is_none() {
            with_class!(load.class, T => {
                let at = |offset: i64| T::from_i64(bound.offset + offset);
                if short {
                    // SAFETY: the register has room for `n` elements of the class.
                    unsafe { fill_short(|offset| at(offset as i64), sizes, bound.strides, index, n, out.cast::<T>()) };
                    return;
                }
                // SAFETY: as above.
                let out = unsafe { slice_mut::<T>(out, n) };
                pieces(sizes, bound.strides, index, n, |from, offset, stride, count| {
                    for (i, out) in out[from..from + count].iter_mut().enumerate() {
                        *out = at(offset + stride * i as i64);
                    }
                });
            });
            return;
        }
        let size = load.dtype.size_in_bytes();
        let native = load.class.is_stored_as(load.dtype);
        let raw = if native { out } else { self.registers };
        if short {
            // SAFETY: as below.
            unsafe {
                match size {
                    1 => gather_short::<u8>(bound.at, sizes, bound.strides, index, n, raw),
                    2 => gather_short::<u16>(bound.at, sizes, bound.strides, index, n, raw),
                    4 => gather_short::<u32>(bound.at, sizes, bound.strides, index, n, raw),
                    _ => gather_short::<u64>(bound.at, sizes, bound.strides, index, n, raw),
                }
            }
            if !native {
                // SAFETY: as below.
                unsafe { exec::widen(self.nest.isa, load.dtype, raw, slice_mut(out, n)) };
            }
            return;
        }
        pieces(sizes, bound.strides, index, n, |from, offset, stride, count| {
            let source = bound.at.wrapping_offset(offset as isize * size as isize);
            let to = raw.wrapping_add(from * size);
            // SAFETY: `bind` checked the nest against the buffer; the register has room for `n` elements.
            unsafe {
                match size {
                    1 => gather::<u8>(source, stride, to, count),
                    2 => gather::<u16>(source, stride, to, count),
                    4 => gather::<u32>(source, stride, to, count),
                    _ => gather::<u64>(source, stride, to, count),
                }
            }
        });
        if !native {
            // SAFETY: the staging area holds the `n` elements that were just gathered, apart from the register.
            unsafe { exec::widen(self.nest.isa, load.dtype, raw, slice_mut(out, n)) };
        }
    }

    /// The staging area: for stores that convert.
    fn staging(&self) -> *mut u8 {
        self.registers
    }
}

/// Elements of a nest that are more than the caches hold.
const LARGE: usize = 256 << 10;

/// Runs elements `from..to` of a nest and stores them at `output`, which has strides for the same nest (`Linear`: its
/// elements follow one another).
///
/// # Safety
/// The output's memory is not used by anyone else, the operands' memory not written, while this runs.
pub(crate) unsafe fn run_range(
    nest: &Nest<'_>,
    layout: Layout,
    output: Bound<'_>,
    from: usize,
    to: usize,
) -> Result<()> {
    let code = nest.block;
    let inner = nest.sizes.last().map_or(1, |&size| size as usize);
    // Where rows are long, blocks end with them, so that operands lie in order and are read in place.
    let by_rows = inner >= 256 && nest.sizes.len() > 1;
    let size = block_size(code, to - from);
    scratch::with(scratch::REGISTERS, Walker::scratch(code, size), |registers| {
        // SAFETY: the scratch memory is this call's own.
        let mut walker = unsafe { Walker::new(nest, registers, size)? };
        if to - from >= LARGE {
            walker.look_ahead();
        }
        let mut at = from;
        while at < to {
            let row = if by_rows { inner - at % inner } else { usize::MAX };
            let n = size.min(to - at).min(row);
            // SAFETY: the caller's.
            unsafe { walker.run_and_store(layout, output, at, n) };
            at += n;
        }
        Ok(())
    })
}

impl Walker<'_> {
    /// Computes elements `at..at + n` of the nest and stores them.
    ///
    /// # Safety
    /// As [`Walker::run`], and nobody else uses the output's elements.
    pub unsafe fn run_and_store(&mut self, layout: Layout, output: Bound<'_>, at: usize, n: usize) {
        let code = self.nest.block;
        let (dtype, element) = (code.dtype, code.dtype.size_in_bytes());
        let native = code.class.is_stored_as(dtype);
        if layout == Layout::Linear {
            let out = output.at.wrapping_add(at * element);
            if self.ahead {
                prefetch(out.wrapping_add(n * element), n * element);
            }
            // SAFETY: `bind` checked the output's nest against its buffer; the rest is the caller's.
            unsafe {
                if native {
                    self.run(at, n, Some(out));
                } else {
                    let result = self.run(at, n, None);
                    exec::narrow(self.nest.isa, dtype, slice(result, n), out);
                }
            }
            return;
        }
        let index = self.position(at);
        let sizes = self.nest.sizes;
        let inner = sizes.len().wrapping_sub(1);
        let in_order = sizes.is_empty() || output.strides[inner] == 1 && index[inner] + n <= sizes[inner] as usize;
        let offset = dot(&index, output.strides);
        let out = output.at.wrapping_offset(offset as isize * element as isize);
        // SAFETY: as above; `out` has room for `n` elements only where they lie in order.
        let mut result = unsafe { self.run(at, n, (native && in_order).then_some(out)) };
        if native && in_order {
            return;
        }
        if !native {
            let staging = self.staging();
            // SAFETY: the staging area has room for a block, apart from all registers.
            unsafe { exec::narrow(self.nest.isa, dtype, slice(result, n), staging) };
            result = staging;
        }
        pieces(sizes, output.strides, &index, n, |from, offset, stride, count| {
            let to = output.at.wrapping_offset(offset as isize * element as isize);
            let from = result.wrapping_add(from * element);
            // SAFETY: as above.
            unsafe {
                match element {
                    1 => scatter::<u8>(from, stride, to, count),
                    2 => scatter::<u16>(from, stride, to, count),
                    4 => scatter::<u32>(from, stride, to, count),
                    _ => scatter::<u64>(from, stride, to, count),
                }
            }
        });
    }
}

/// Stores `n` elements of a class, as they were computed, to contiguous memory of a dtype.
///
/// # Safety
/// `from` holds `n` elements of the class, `to` has room for `n` of the dtype, aligned, unshared.
pub(crate) unsafe fn store(isa: Isa, class: Class, dtype: DType, from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller's.
    unsafe {
        if class.is_stored_as(dtype) {
            std::ptr::copy_nonoverlapping(from, to, n * class.size());
        } else {
            exec::narrow(isa, dtype, slice(from, n), to);
        }
    }
}
