//! Tiles that are turned: rows that lie side by side in memory, brought into order.

/// Elements along each side of a tile that is turned at once. Read along either axis alone, a transposition would touch a
/// cache line for each element.
pub(crate) const TILE: usize = 16;

/// `to[i, j] = from[i + j * stride]`, for at most `TILE` rows i of `cols` elements of `size` bytes each.
///
/// # Safety
/// Both hold these elements, aligned, and nobody else uses `to`.
pub(crate) unsafe fn turn(size: usize, from: *const u8, stride: i64, to: *mut u8, rows: usize, cols: usize) {
    // SAFETY: the caller's.
    unsafe {
        match size {
            1 => turn_as::<u8>(from, stride, to, rows, cols),
            2 => turn_as::<u16>(from, stride, to, rows, cols),
            4 => turn_as::<u32>(from, stride, to, rows, cols),
            _ => turn_as::<u64>(from, stride, to, rows, cols),
        }
    }
}

/// As [`turn`], of elements of `T`'s size.
///
/// # Safety
/// As [`turn`].
unsafe fn turn_as<T: Copy + Default>(from: *const u8, stride: i64, to: *mut u8, rows: usize, cols: usize) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    let mut tile = [[T::default(); TILE]; TILE];
    for first in (0..cols).step_by(TILE) {
        let n = TILE.min(cols - first);
        for j in 0..n {
            let column = from.wrapping_offset((first + j) as isize * stride as isize);
            for i in 0..rows {
                // SAFETY: the caller's.
                tile[i][j] = unsafe { column.add(i).read() };
            }
        }
        for (i, row) in tile.iter().enumerate().take(rows) {
            // SAFETY: the caller's.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), to.add(i * cols + first), n) };
        }
    }
}
