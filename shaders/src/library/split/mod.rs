//! Steps whose buffers are larger than one binding may be: such a step is cut into pieces along its axes, until each
//! piece reaches no more of any buffer than fits one binding. A piece binds a window of each buffer, and its words are
//! those of the step with other sizes and offsets.
//!
//! A step is described as a box of axes and the accesses of its operands (`describe`): an access reaches
//! `start + sum(index[a] * stride[a])`, and from there over an extent that no cut makes smaller (the k of a product, the
//! row of a norm). The box is halved where that helps the operand that reaches too far. What no cut brings below the
//! limit is an error that names it.

mod describe;
mod reduce;

use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use tallow_graph::{Error, Kernel, Result, Scalar};

/// What one binding may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Most bytes of a binding: `max_storage_buffer_binding_size`.
    pub binding: u64,
    /// What a binding's offset must be a multiple of: `min_storage_buffer_offset_alignment`.
    pub align: u64,
    /// Most storage buffers bound at once.
    pub buffers: usize,
}

/// The part of a buffer that a piece binds. It may end beyond the buffer, and is to be clipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Which buffer: the step's inputs, then its outputs, then the temporaries, numbered through.
    pub buffer: usize,
    /// First byte, aligned.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A part of a step, to be run by itself. Pieces of a step run in their order.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Its kernel; the implementation is the step's.
    pub kernel: Arc<Kernel>,
    /// Its words.
    pub words: Vec<i64>,
    /// What its bindings show, inputs first.
    pub windows: SmallVec<[Window; 8]>,
    /// Scalars to be appended to the step's.
    pub scalars: SmallVec<[Scalar; 1]>,
    /// Words of the uniform block to be set after `params` has filled it: index, value.
    pub patches: SmallVec<[(usize, u32); 8]>,
}

/// A step in pieces.
#[derive(Debug, Clone, Default)]
pub struct Cut {
    /// To be run in this order.
    pub pieces: Vec<Piece>,
    /// Bytes of each buffer that only the pieces use.
    pub temporaries: Vec<u64>,
}

/// Pieces of one step, at most: more would take longer to record than to compute otherwise.
const MOST: usize = 1 << 16;

/// Whole vectors of four elements of any dtype stay whole in a window that begins at a multiple of this.
const VECTOR: u64 = 32;

/// What a cut of an axis changes in the uniform block.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// The first index, divided.
    First(i64),
    /// How many indices there are.
    Count,
}

/// An axis along which a step can be cut.
#[derive(Debug, Default)]
struct Axis {
    size: i64,
    /// Cuts lie at multiples of this.
    grain: i64,
    /// Such axes are one to the kernel: one is cut only where those before it have one index.
    ordered: bool,
    /// Words that hold the size, or its product with that of other axes.
    sizes: SmallVec<[usize; 2]>,
    /// A word to which the first index is added.
    shifted: Option<usize>,
    patches: SmallVec<[(usize, Part); 2]>,
}

impl Axis {
    fn new(size: i64, word: usize) -> Self {
        Self { size, grain: 1, sizes: smallvec![word], ..Self::default() }
    }

    fn ordered(self) -> Self {
        Self { ordered: true, ..self }
    }

    fn grain(self, grain: i64) -> Self {
        Self { grain, ..self }
    }
}

/// Where a kernel finds an operand's offset.
#[derive(Debug, Clone, Copy)]
enum Offset {
    /// In the step's words.
    Word(usize),
    /// Only in the uniform block.
    Patch(usize),
    /// Nowhere: what it reaches must begin where its window does.
    None,
}

/// How one operand or output reaches its buffer. All but `scale` and `bytes` count units: elements, or packed rows.
#[derive(Debug)]
struct Access {
    /// The piece's binding; `None` for a position, which is an address without memory.
    binding: Option<usize>,
    /// Bytes of a unit.
    bytes: u64,
    /// What one unit adds to the offset word.
    scale: i64,
    offset: Offset,
    start: i64,
    /// For each axis of the box.
    strides: SmallVec<[i64; 4]>,
    /// First and last unit of the extent that is never cut; none where the last lies before the first.
    extent: (i64, i64),
}

/// A step as a box with its accesses.
struct Nest {
    kernel: Arc<Kernel>,
    /// The same for a box that is not contiguous in the output, where that is another kernel.
    strided: Option<Arc<Kernel>>,
    words: Vec<i64>,
    axes: SmallVec<[Axis; 4]>,
    accesses: Vec<Access>,
    /// By the piece's binding: the step's buffer.
    buffers: SmallVec<[usize; 8]>,
    /// The same for all pieces.
    patches: SmallVec<[(usize, u32); 8]>,
}

/// First index and length along each axis.
type Span = SmallVec<[(i64, i64); 4]>;

/// Cuts a step into pieces. `words` are the step's, `scalars` how many of those it brings.
///
/// # Errors
/// Where something that no cut makes smaller is larger than a binding.
pub fn split(kernel: &Kernel, words: &[i64], scalars: usize, room: &Room) -> Result<Cut> {
    let mut cut = Cut::default();
    for nest in describe::nests(kernel, words, room)? {
        match (nest.cut(room, &mut cut.pieces), kernel) {
            (Ok(()), _) => {}
            (Err(error), Kernel::Row(row)) => {
                let output = super::row::inputs(row);
                let places = reduce::Places { output, temporary: output + 1 };
                return reduce::in_chunks(row, words, scalars, places, room)?.ok_or(error);
            }
            (Err(error), _) => return Err(error),
        }
    }
    Ok(cut)
}

/// The error for a step that cannot be cut.
pub fn too_large(kernel: &Kernel, what: &str, room: &Room) -> Error {
    Error::op(
        kernel.name(),
        format!(
            "{what} cannot be bound at once: this device allows {} bytes (max_storage_buffer_binding_size), and the work \
             cannot be cut any further. Split the tensor, keep weights quantized, or use Device::Cpu",
            room.binding
        ),
    )
}

impl Nest {
    fn cut(&self, room: &Room, pieces: &mut Vec<Piece>) -> Result<()> {
        let whole: Span = self.axes.iter().map(|axis| (0, axis.size)).collect();
        let mut open = vec![whole];
        while let Some(span) = open.pop() {
            if span.iter().any(|&(_, length)| length <= 0) {
                continue;
            }
            match self.too_far(&span, room)? {
                None => pieces.push(self.piece(&span, room)?),
                Some((binding, bytes)) => {
                    let axis = self.where_to_cut(&span, binding).ok_or_else(|| {
                        let what = if binding + 1 == self.buffers.len() { "of the output" } else { "of an operand" };
                        too_large(&self.kernel, &format!("{bytes} bytes {what}"), room)
                    })?;
                    let (first, length) = span[axis];
                    let grain = self.axes[axis].grain;
                    let half = (length / 2 / grain * grain).max(grain);
                    let (mut low, mut high) = (span.clone(), span);
                    low[axis] = (first, half);
                    high[axis] = (first + half, length - half);
                    // The lower half comes off first.
                    open.extend([high, low]);
                }
            }
            if pieces.len() + open.len() > MOST {
                return Err(too_large(&self.kernel, &format!("more than {MOST} pieces"), room));
            }
        }
        Ok(())
    }

    /// First and last unit that an access reaches; `None` for nothing.
    fn reach(access: &Access, span: &Span) -> Option<(i128, i128)> {
        if access.binding.is_none() || access.extent.1 < access.extent.0 {
            return None;
        }
        let mut reach = (
            i128::from(access.start) + i128::from(access.extent.0),
            i128::from(access.start) + i128::from(access.extent.1),
        );
        for (&(first, length), &stride) in span.iter().zip(&access.strides) {
            let (near, far) =
                (i128::from(first) * i128::from(stride), i128::from(first + length - 1) * i128::from(stride));
            reach.0 += near.min(far);
            reach.1 += near.max(far);
        }
        Some(reach)
    }

    /// First byte and bytes that a binding must show, aligned; nothing reached is a window all the same.
    fn window(&self, span: &Span, binding: usize, room: &Room) -> Result<(u64, u64)> {
        let mut align = room.align.max(VECTOR);
        let mut reach: Option<(i128, i128)> = None;
        for access in self.accesses.iter().filter(|access| access.binding == Some(binding)) {
            let Some((first, last)) = Self::reach(access, span) else { continue };
            align = lcm(align, access.bytes);
            let bytes = i128::from(access.bytes);
            let (start, end) = (first * bytes, (last + 1) * bytes);
            reach = Some(reach.map_or((start, end), |(s, e)| (s.min(start), e.max(end))));
        }
        let Some((start, end)) = reach else { return Ok((0, 16)) };
        let broken = || Error::op(self.kernel.name(), "an operand reaches outside any buffer");
        let start = u64::try_from(start).map_err(|_| broken())?;
        let end = u64::try_from(end).ok().and_then(|end| end.checked_next_multiple_of(16)).ok_or_else(broken)?;
        let start = start / align * align;
        Ok((start, end - start))
    }

    /// The binding that shows most, if that is too much.
    fn too_far(&self, span: &Span, room: &Room) -> Result<Option<(usize, u64)>> {
        let mut worst: Option<(usize, u64)> = None;
        for binding in 0..self.buffers.len() {
            let (_, bytes) = self.window(span, binding, room)?;
            if bytes > room.binding && worst.is_none_or(|(_, most)| bytes > most) {
                worst = Some((binding, bytes));
            }
        }
        Ok(worst)
    }

    /// The axis whose halving makes the binding's reach smallest.
    fn where_to_cut(&self, span: &Span, binding: usize) -> Option<usize> {
        let cuttable = |axis: usize| span[axis].1 > self.axes[axis].grain;
        let mut best: Option<(usize, i128)> = None;
        for axis in 0..self.axes.len() {
            if !cuttable(axis) {
                continue;
            }
            let accesses = self.accesses.iter().filter(|access| access.binding == Some(binding));
            let gain = accesses.map(|a| i128::from(span[axis].1 - 1) * i128::from(a.strides[axis]).abs()).max()?;
            if gain > 0 && best.is_none_or(|(_, most)| gain > most) {
                best = Some((axis, gain));
            }
        }
        let (axis, _) = best?;
        if !self.axes[axis].ordered {
            return Some(axis);
        }
        // Those before it come first, also where they help nobody.
        match (0..axis).find(|&before| self.axes[before].ordered && span[before].1 > 1) {
            Some(before) => cuttable(before).then_some(before),
            None => Some(axis),
        }
    }

    fn piece(&self, span: &Span, room: &Room) -> Result<Piece> {
        let mut words = self.words.clone();
        let mut patches = self.patches.clone();
        for &word in self.axes.iter().flat_map(|axis| &axis.sizes) {
            set(&mut words, word, 1);
        }
        for (axis, &(first, length)) in self.axes.iter().zip(span) {
            for &word in &axis.sizes {
                let others = words.get(word).copied().unwrap_or(1);
                set(&mut words, word, others * length);
            }
            if let Some(word) = axis.shifted {
                let before = words.get(word).copied().unwrap_or(0);
                set(&mut words, word, before + first);
            }
            patches.extend(axis.patches.iter().map(|&(at, part)| match part {
                Part::First(by) => (at, (first / by) as u32),
                Part::Count => (at, length as u32),
            }));
        }
        let mut windows: SmallVec<[Window; 8]> = SmallVec::new();
        for (binding, &buffer) in self.buffers.iter().enumerate() {
            let (offset, bytes) = self.window(span, binding, room)?;
            windows.push(Window { buffer, offset, bytes });
        }
        for access in &self.accesses {
            let moved: i64 = span.iter().zip(&access.strides).map(|(&(first, _), &stride)| first * stride).sum();
            let window = access.binding.and_then(|b| windows.get(b)).map_or(0, |w| (w.offset / access.bytes) as i64);
            // What reaches nothing has no place in the window.
            let empty = access.binding.is_some() && Self::reach(access, span).is_none();
            let at = if empty { 0 } else { (access.start + moved - window) * access.scale };
            match access.offset {
                Offset::Word(word) => set(&mut words, word, at),
                Offset::Patch(word) => patches.push((word, at as u32)),
                Offset::None if at == 0 => {}
                Offset::None => {
                    return Err(Error::op(self.kernel.name(), "a piece does not begin at a binding's alignment"));
                }
            }
        }
        let kernel = match &self.strided {
            Some(strided) if !self.contiguous(span) => strided,
            _ => &self.kernel,
        };
        Ok(Piece { kernel: Arc::clone(kernel), words, windows, scalars: SmallVec::new(), patches })
    }

    /// Whether the span is one run of the linear index: whole axes inside, single indices outside.
    fn contiguous(&self, span: &Span) -> bool {
        let outer = span.iter().take_while(|&&(_, length)| length == 1).count();
        self.axes.iter().zip(span).skip(outer + 1).all(|(axis, &(_, length))| length == axis.size)
    }
}

fn set(words: &mut [i64], at: usize, value: i64) {
    if let Some(word) = words.get_mut(at) {
        *word = value;
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a.max(1), b.max(1));
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a.max(1) / x * b.max(1)
}
