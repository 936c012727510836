//! The kernels of each instruction set: its micro-kernels for every number of rows and vectors, and its packing.
//!
//! | set | rows x columns (f32) | registers |
//! |---|---|---|
//! | AVX-512 | 14 x 32 | 28 sums, 2 of the right operand, 1 spread element, of 32 |
//! | AVX2 | 6 x 16 | 12, 2, 1, of 16 |
//! | NEON | 8 x 12 | 24, 3, 1, of 32 |
//! | SSE2, simd128 | 6 x 8 | 12, 2, 1 and a product (no fused multiply-add), of 16 |

use half::{bf16, f16};

use super::few::{FEW, Few, by_columns, by_rows};
use super::micro::{direct, micro};
use super::pack::pack;
use super::simd::{Simd, Source};
use crate::Isa;
#[cfg(target_arch = "x86_64")]
use crate::isa::Level;

/// See [`micro`].
type Micro<T> = unsafe fn(usize, *const T, *const T, *mut T, usize, usize, bool);
/// See [`direct`].
type Direct<T> = unsafe fn(usize, *const T, *const isize, *const T, *mut T, usize, bool);
/// See [`pack`].
type Pack<T> = unsafe fn(usize, usize, usize, *const u8, isize, isize, *mut T);

/// See [`few`](super::few): by columns and by rows, for each number of rows from 1 on.
type FewRows<T> = [[unsafe fn(Few<T>); FEW]; 2];

/// What is compiled for each way that a right operand is stored.
struct Reading<T> {
    pack: Pack<T>,
    few: FewRows<T>,
}

/// How an operand's elements are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// As the products are computed.
    Own,
    F16,
    BF16,
}

impl Stored {
    /// Bytes of an element, where products are of `T`.
    pub fn size<T>(self) -> usize {
        if self == Stored::Own { size_of::<T>() } else { 2 }
    }
}

/// An element type that products are computed in.
pub(crate) trait Element: Copy + Default + Send + Sync + 'static {
    /// The kernels of an instruction set.
    fn kernel(isa: Isa) -> &'static Kernel<Self>;
}

/// The kernels of an instruction set for one element type.
pub(crate) struct Kernel<T: 'static> {
    /// Most rows of a panel of the left operand.
    pub rows: usize,
    /// Places between the steps of a panel of the left operand: the rows, rounded up.
    pub left_step: usize,
    /// Columns of a panel of the right operand, and the places between its steps.
    pub cols: usize,
    /// Lanes of a vector.
    lanes: usize,
    /// For each number of rows from 1 on, for each number of vectors from 1 on.
    micro: &'static [Micro<T>],
    /// The same, of left operands that were not packed.
    direct: &'static [Direct<T>],
    own: Reading<T>,
    /// From f16 and bf16.
    halves: Option<[Reading<T>; 2]>,
}

impl<T> Kernel<T> {
    /// Lanes of a vector.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Products of one panel by one panel: `c[i, j] (+)= sum over l of a[l, i] * b[l, j]`. No rows or no columns: nothing.
    ///
    /// # Safety
    /// `a` holds `depth` steps, [`Kernel::left_step`] apart, of `rows` elements (at most [`Kernel::rows`]); `b` holds `depth`
    /// steps of [`Kernel::cols`] elements, of which those after `cols` (at most that many) are anything, but initialised up
    /// to a whole vector. `c` has `rows` rows of `cols` elements, `stride` apart, that nobody else uses.
    #[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
    #[inline]
    pub unsafe fn run(
        &self,
        depth: usize,
        (a, rows): (*const T, usize),
        (b, cols): (*const T, usize),
        c: *mut T,
        stride: usize,
        add: bool,
    ) {
        let vectors = self.cols / self.lanes;
        if rows == 0 || cols == 0 {
            return;
        }
        let at = (rows - 1) * vectors + (cols - 1) / self.lanes;
        if let (Some(micro), true) = (self.micro.get(at), cols <= self.cols) {
            // SAFETY: the caller's; the kernels of this set are only handed out with its `Isa`.
            unsafe { micro(depth, a, b, c, stride, cols, add) };
        }
    }

    /// As [`Kernel::run`], of `rows` neighbouring elements of a left operand as it lies: step l reads them at `a +
    /// offsets[l]`. The rows of `c` are whole vectors.
    ///
    /// # Safety
    /// `rows` elements (at most [`Kernel::rows`]) are readable at `a` and each of the `offsets`; `b` holds as many steps, as
    /// in [`Kernel::run`]. `c` has `rows` rows of `cols` elements, rounded up to vectors, `stride` apart, that nobody else
    /// uses.
    #[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
    #[inline]
    pub unsafe fn run_direct(
        &self,
        offsets: &[isize],
        (a, rows): (*const T, usize),
        (b, cols): (*const T, usize),
        c: *mut T,
        stride: usize,
        add: bool,
    ) {
        if rows == 0 || cols == 0 {
            return;
        }
        let at = (rows - 1) * (self.cols / self.lanes) + (cols - 1) / self.lanes;
        if let (Some(direct), true) = (self.direct.get(at), cols <= self.cols) {
            // SAFETY: the caller's; the kernels of this set are only handed out with its `Isa`.
            unsafe { direct(offsets.len(), a, offsets.as_ptr(), b, c, stride, add) };
        }
    }

    /// Packs a strip of `width` rows of a left operand (`step` is [`Kernel::left_step`]) or columns of a right one (`step` is
    /// [`Kernel::cols`]) over `depth`: element (l, w) lies at `from + l * by_depth + w * by_width`, in elements of `stored`.
    ///
    /// # Safety
    /// The elements are readable; `to` has room for `depth * step` elements that nobody else uses; `width` is at most
    /// `step`. `stored` is `Own` unless `T` is f32.
    #[allow(clippy::too_many_arguments, reason = "a strip of a matrix")]
    #[inline]
    pub unsafe fn pack(
        &self,
        stored: Stored,
        depth: usize,
        width: usize,
        step: usize,
        from: *const u8,
        by_depth: isize,
        by_width: isize,
        to: *mut T,
    ) {
        // SAFETY: the caller's; the kernels of this set are only handed out with its `Isa`.
        unsafe { (self.of(stored).pack)(depth, width, step, from, by_depth, by_width, to) }
    }

    /// Products of `rows` rows (at most [`FEW`]; none: nothing) by a right operand in elements of `stored`, whose columns
    /// (`by_columns`; the left operand's rows must too) or rows lie in one piece.
    ///
    /// # Safety
    /// The operands are readable; the output has room, and nobody else uses it. `stored` is `Own` unless `T` is f32.
    #[inline]
    pub unsafe fn few(&self, stored: Stored, rows: usize, by_columns: bool, few: Few<T>) {
        if let Some(run) = self.of(stored).few[usize::from(!by_columns)].get(rows.wrapping_sub(1)) {
            // SAFETY: the caller's; the kernels of this set are only handed out with its `Isa`.
            unsafe { run(few) }
        }
    }

    fn of(&self, stored: Stored) -> &Reading<T> {
        match (stored, &self.halves) {
            (Stored::F16, Some([f16, _])) => f16,
            (Stored::BF16, Some([_, bf16])) => bf16,
            _ => &self.own,
        }
    }
}

/// Entry points that are compiled for an instruction set.
macro_rules! entries {
    ($micro:ident, $direct:ident, $pack:ident, $columns:ident, $rows:ident $(, $feature:literal)?) => {
        #[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
        $(#[target_feature(enable = $feature)])?
        unsafe fn $micro<S: Simd, const A: usize, const B: usize, const R: usize, const V: usize>(
            depth: usize,
            a: *const S::T,
            b: *const S::T,
            c: *mut S::T,
            stride: usize,
            cols: usize,
            add: bool,
        ) {
            // SAFETY: the caller's.
            unsafe { micro::<S, A, B, R, V>(depth, a, b, c, stride, cols, add) }
        }

        #[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
        $(#[target_feature(enable = $feature)])?
        unsafe fn $direct<S: Simd, const A: usize, const B: usize, const R: usize, const V: usize>(
            depth: usize,
            a: *const S::T,
            offsets: *const isize,
            b: *const S::T,
            c: *mut S::T,
            stride: usize,
            add: bool,
        ) {
            // SAFETY: the caller's.
            unsafe { direct::<S, B, R, V>(depth, a, offsets, b, c, stride, add) }
        }

        #[allow(clippy::too_many_arguments, reason = "a strip of a matrix")]
        $(#[target_feature(enable = $feature)])?
        unsafe fn $pack<S: Simd, F: Source<S>>(
            depth: usize,
            width: usize,
            step: usize,
            from: *const u8,
            by_depth: isize,
            by_width: isize,
            to: *mut S::T,
        ) {
            // SAFETY: the caller's.
            unsafe { pack::<S, F>(depth, width, step, from, by_depth, by_width, to) }
        }

        $(#[target_feature(enable = $feature)])?
        unsafe fn $columns<S: Simd, F: Source<S>, const R: usize>(few: Few<S::T>) {
            // SAFETY: the caller's.
            unsafe { by_columns::<S, F, R>(few) }
        }

        $(#[target_feature(enable = $feature)])?
        unsafe fn $rows<S: Simd, F: Source<S>, const R: usize>(few: Few<S::T>) {
            // SAFETY: the caller's.
            unsafe { by_rows::<S, F, R>(few) }
        }
    };
}

/// A static [`Kernel`].
macro_rules! kernel {
    ($name:ident: $t:ty, $s:ty, [$micro:ident $direct:ident $($from:ident)*], $a:literal x $b:literal,
     rows $most:literal: [$($r:literal)*], vectors $v:tt $(, $half:tt)?) => {
        static $name: Kernel<$t> = Kernel {
            rows: $most,
            left_step: $a,
            cols: $b,
            lanes: <$s as Simd>::LANES,
            micro: kernel!(@table $micro, $s, $a, $b, $v, [$($r)*]),
            direct: kernel!(@table $direct, $s, $a, $b, $v, [$($r)*]),
            own: kernel!(@from $($from)*, $s, $t),
            halves: kernel!(@halves [$($from)*], $s $(, $half)?),
        };
    };
    (@table $micro:ident, $s:ty, $a:literal, $b:literal, 2, [$($r:literal)*]) => {
        &[$($micro::<$s, $a, $b, $r, 1>, $micro::<$s, $a, $b, $r, 2>),*]
    };
    (@table $micro:ident, $s:ty, $a:literal, $b:literal, 3, [$($r:literal)*]) => {
        &[$($micro::<$s, $a, $b, $r, 1>, $micro::<$s, $a, $b, $r, 2>, $micro::<$s, $a, $b, $r, 3>),*]
    };
    (@halves [$($from:ident)*], $s:ty, halves) => {
        Some([kernel!(@from $($from)*, $s, f16), kernel!(@from $($from)*, $s, bf16)])
    };
    (@halves [$($from:ident)*], $s:ty) => { None };
    (@from $pack:ident $columns:ident $rows:ident, $s:ty, $f:ty) => {
        Reading {
            pack: $pack::<$s, $f>,
            few: [
                [$columns::<$s, $f, 1>, $columns::<$s, $f, 2>, $columns::<$s, $f, 3>, $columns::<$s, $f, 4>],
                [$rows::<$s, $f, 1>, $rows::<$s, $f, 2>, $rows::<$s, $f, 3>, $rows::<$s, $f, 4>],
            ],
        }
    };
}

entries!(micro_plain, direct_plain, pack_plain, columns_plain, rows_plain);

#[cfg(target_arch = "x86_64")]
mod sets {
    use super::*;
    pub(super) use crate::gemm::x86::*;

    entries!(micro_avx2, direct_avx2, pack_avx2, columns_avx2, rows_avx2, "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt");
    entries!(
        micro_avx512,
        direct_avx512,
        pack_avx512,
        columns_avx512,
        rows_avx512,
        "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
    );
    kernel!(AVX512: f32, Avx512, [micro_avx512 direct_avx512 pack_avx512 columns_avx512 rows_avx512], 16 x 32,
        rows 14: [1 2 3 4 5 6 7 8 9 10 11 12 13 14], vectors 2, halves);
    kernel!(AVX512_F64: f64, Avx512F64, [micro_avx512 direct_avx512 pack_avx512 columns_avx512 rows_avx512], 16 x 16,
        rows 14: [1 2 3 4 5 6 7 8 9 10 11 12 13 14], vectors 2);
    kernel!(AVX2: f32, Avx2, [micro_avx2 direct_avx2 pack_avx2 columns_avx2 rows_avx2], 8 x 16, rows 6: [1 2 3 4 5 6], vectors 2, halves);
    kernel!(AVX2_F64: f64, Avx2F64, [micro_avx2 direct_avx2 pack_avx2 columns_avx2 rows_avx2], 8 x 8, rows 6: [1 2 3 4 5 6], vectors 2);
    kernel!(PLAIN: f32, Sse, [micro_plain direct_plain pack_plain columns_plain rows_plain], 8 x 8, rows 6: [1 2 3 4 5 6], vectors 2, halves);
    kernel!(PLAIN_F64: f64, Sse64, [micro_plain direct_plain pack_plain columns_plain rows_plain], 8 x 4, rows 6: [1 2 3 4 5 6], vectors 2);

    pub(super) fn f32(isa: Isa) -> &'static Kernel<f32> {
        match isa.level() {
            Level::Avx512 | Level::Avx512Vnni => &AVX512,
            Level::Avx2 => &AVX2,
            _ => &PLAIN,
        }
    }
    pub(super) fn f64(isa: Isa) -> &'static Kernel<f64> {
        match isa.level() {
            Level::Avx512 | Level::Avx512Vnni => &AVX512_F64,
            Level::Avx2 => &AVX2_F64,
            _ => &PLAIN_F64,
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod sets {
    use super::*;
    use crate::gemm::neon::*;

    kernel!(NEON: f32, Neon, [micro_plain direct_plain pack_plain columns_plain rows_plain], 8 x 12, rows 8: [1 2 3 4 5 6 7 8], vectors 3, halves);
    kernel!(NEON_F64: f64, NeonF64, [micro_plain direct_plain pack_plain columns_plain rows_plain], 8 x 6, rows 8: [1 2 3 4 5 6 7 8], vectors 3);

    pub(super) fn f32(_: Isa) -> &'static Kernel<f32> {
        &NEON
    }
    pub(super) fn f64(_: Isa) -> &'static Kernel<f64> {
        &NEON_F64
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod sets {
    use super::*;
    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    use crate::gemm::simd::Array;
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    use crate::gemm::simd128::{Simd128 as Vectors, Simd128F64 as VectorsF64};
    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    type Vectors = Array<f32>;
    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    type VectorsF64 = Array<f64>;

    kernel!(PLAIN: f32, Vectors, [micro_plain direct_plain pack_plain columns_plain rows_plain], 8 x 8, rows 6: [1 2 3 4 5 6], vectors 2, halves);
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    kernel!(PLAIN_F64: f64, VectorsF64, [micro_plain direct_plain pack_plain columns_plain rows_plain], 8 x 4, rows 6: [1 2 3 4 5 6], vectors 2);
    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    kernel!(PLAIN_F64: f64, VectorsF64, [micro_plain direct_plain pack_plain columns_plain rows_plain], 8 x 8, rows 6: [1 2 3 4 5 6], vectors 2);

    pub(super) fn f32(_: Isa) -> &'static Kernel<f32> {
        &PLAIN
    }
    pub(super) fn f64(_: Isa) -> &'static Kernel<f64> {
        &PLAIN_F64
    }
}

impl Element for f32 {
    fn kernel(isa: Isa) -> &'static Kernel<f32> {
        sets::f32(isa)
    }
}
impl Element for f64 {
    fn kernel(isa: Isa) -> &'static Kernel<f64> {
        sets::f64(isa)
    }
}
