//! Elements of a loop nest, copied to and from contiguous memory: runs along the innermost axis, or, where those are short,
//! rows of the last two axes.

use super::walk::MAX_AXES;

/// The offset of a position.
pub(super) fn dot(index: &[usize], strides: &[i64]) -> i64 {
    index.iter().zip(strides).map(|(&i, &stride)| i as i64 * stride).sum()
}

/// Cuts `n` elements from position `index` on into runs along the innermost axis: calls `f(elements before, offset of
/// the first, stride, count)` for each.
#[inline]
pub(super) fn pieces(
    sizes: &[i64],
    strides: &[i64],
    index: &[usize; MAX_AXES],
    n: usize,
    mut f: impl FnMut(usize, i64, i64, usize),
) {
    let Some(inner) = sizes.len().checked_sub(1) else {
        // One element, as often as it is asked for.
        f(0, 0, 0, n);
        return;
    };
    let mut index = *index;
    let (width, stride) = (sizes[inner] as usize, strides[inner]);
    let mut offset = dot(&index[..=inner], strides);
    let mut done = 0;
    loop {
        let count = (width - index[inner]).min(n - done);
        f(done, offset, stride, count);
        done += count;
        if done >= n {
            return;
        }
        // The next row: the innermost index back to 0, the others count up.
        offset -= index[inner] as i64 * stride;
        index[inner] = 0;
        for axis in (0..inner).rev() {
            index[axis] += 1;
            offset += strides[axis];
            if index[axis] < sizes[axis] as usize {
                break;
            }
            offset -= index[axis] as i64 * strides[axis];
            index[axis] = 0;
        }
    }
}

/// # Safety
/// `count` elements from `from` on by `stride` lie in one buffer; `to` has room for them, aligned.
#[inline(always)]
pub(super) unsafe fn gather<T: Copy>(from: *const u8, stride: i64, to: *mut u8, count: usize) {
    // SAFETY: the caller's. A file's bytes need not be aligned, so elements are read as they lie.
    unsafe {
        let (from, to) = (from.cast::<T>(), to.cast::<T>());
        match stride {
            1 => std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), count * size_of::<T>()),
            0 => {
                let value = from.read_unaligned();
                (0..count).for_each(|i| to.add(i).write(value));
            }
            _ => (0..count).for_each(|i| {
                to.add(i).write(from.wrapping_offset(i as isize * stride as isize).read_unaligned());
            }),
        }
    }
}

/// Elements of a row that is gathered together with its neighbours.
pub(super) const SHORT_ROW: i64 = 8;

/// Gathers `n` elements from position `index` on of a nest whose rows are short.
///
/// # Safety
/// The nest's elements lie in one buffer; `to` has room for `n`, aligned.
pub(super) unsafe fn gather_short<T: Copy>(
    at: *const u8,
    sizes: &[i64],
    strides: &[i64],
    index: &[usize; MAX_AXES],
    n: usize,
    to: *mut u8,
) {
    // SAFETY: the caller's. A file's bytes need not be aligned, so elements are read as they lie.
    unsafe {
        let read = |offset: isize| at.cast::<T>().wrapping_offset(offset).read_unaligned();
        fill_short(read, sizes, strides, index, n, to.cast::<T>());
    }
}

/// Fills `n` elements from position `index` on of a nest whose rows are short with what `read` gives for their offsets: a
/// loop over the last two axes, instead of a call for each row.
///
/// # Safety
/// `to` has room for `n` elements; `read` may be asked for any offset of the nest.
#[inline(always)]
pub(super) unsafe fn fill_short<T: Copy>(
    read: impl Fn(isize) -> T,
    sizes: &[i64],
    strides: &[i64],
    index: &[usize; MAX_AXES],
    n: usize,
    to: *mut T,
) {
    let inner = sizes.len() - 1;
    let (width, step) = (sizes[inner].max(1) as usize, strides[inner] as isize);
    let (height, row) = (sizes[inner - 1] as usize, strides[inner - 1] as isize);
    let (mut index, mut done) = (*index, 0);
    let mut from = dot(&index[..=inner], strides) as isize;
    while done < n {
        if index[inner] > 0 || n - done < width {
            // The rest of a row.
            let count = (width - index[inner]).min(n - done);
            for i in 0..count {
                // SAFETY: the caller's.
                unsafe { to.add(done + i).write(read(from + i as isize * step)) };
            }
            done += count;
            from += row - index[inner] as isize * step;
            index[inner] = 0;
            index[inner - 1] += 1;
        } else {
            // As many whole rows as follow one another.
            let rows = (height - index[inner - 1]).min((n - done) / width);
            // SAFETY: as above.
            unsafe {
                let to = to.add(done);
                match (width, row, step) {
                    (2, 1, 0) => fill_rows::<T, 2>(&read, from, 1, 0, to, rows),
                    (2, 0, 1) => fill_rows::<T, 2>(&read, from, 0, 1, to, rows),
                    (2, ..) => fill_rows::<T, 2>(&read, from, row, step, to, rows),
                    (3, ..) => fill_rows::<T, 3>(&read, from, row, step, to, rows),
                    (4, ..) => fill_rows::<T, 4>(&read, from, row, step, to, rows),
                    _ => {
                        for i in 0..rows {
                            for j in 0..width {
                                let value = read(from + i as isize * row + j as isize * step);
                                to.add(i * width + j).write(value);
                            }
                        }
                    }
                }
            }
            done += rows * width;
            from += rows as isize * row;
            index[inner - 1] += rows;
        }
        for axis in (1..inner).rev() {
            if index[axis] < sizes[axis] as usize {
                break;
            }
            from += strides[axis - 1] as isize - index[axis] as isize * strides[axis] as isize;
            index[axis] = 0;
            index[axis - 1] += 1;
        }
    }
}

/// `rows` rows of `W` elements.
///
/// # Safety
/// As [`fill_short`].
#[inline(always)]
unsafe fn fill_rows<T: Copy, const W: usize>(
    read: &impl Fn(isize) -> T,
    from: isize,
    row: isize,
    step: isize,
    to: *mut T,
    rows: usize,
) {
    for i in 0..rows {
        for j in 0..W {
            // SAFETY: the caller's.
            unsafe { to.add(i * W + j).write(read(from + i as isize * row + j as isize * step)) };
        }
    }
}

/// # Safety
/// As [`gather`], the other way round.
#[inline(always)]
pub(super) unsafe fn scatter<T: Copy>(from: *const u8, stride: i64, to: *mut u8, count: usize) {
    // SAFETY: the caller's.
    unsafe {
        let (from, to) = (from.cast::<T>(), to.cast::<T>());
        match stride {
            1 => std::ptr::copy_nonoverlapping(from, to, count),
            _ => {
                (0..count).for_each(|i| to.wrapping_offset(i as isize * stride as isize).write(from.add(i).read()));
            }
        }
    }
}
