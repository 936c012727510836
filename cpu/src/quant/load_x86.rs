//! How blocks come into registers on x86, for the kernels of `dot_x86` and `dot_f32_x86`.
//!
//! Work goes by units: 4 blocks of the 32-element formats, or 1 block of 256. A unit's scales and minima are made as
//! one vector, multiplied with the activations' scales and sums, and spread over the lanes, so that a group costs one
//! integer dot product, one conversion and one multiply-add.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::acts::ActivationsQ8;
use super::format::{Format, Q4_0, Q4_1, Q4K, Q6K, Q8_0, half_to_f32};

/// How a format's units come into registers. Pointers are to a whole unit of `UNIT / ELEMS` blocks.
///
/// # Safety
/// Each function asks for AVX2, FMA and F16C, and those that say 512 for AVX-512 F, BW, VL, DQ.
pub(crate) trait Load: Format {
    /// Elements of a unit.
    const UNIT: usize;
    /// What `min` is of `scale`, where it is a multiple. VNNI's second.
    const OFFSET: [f32; 2];
    /// Scales of the unit's groups (lower lanes first), and minima (in the same lanes).
    unsafe fn scales(unit: *const u8) -> Scales;
    /// Quants 32 j .. 32 j + 32.
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i;
    /// Whether `pair` gives both blocks' lower halves and both blocks' upper halves, the first block's in the lower lane:
    /// one sum of products then has the first block's in its lower lane and the second's in its upper one.
    const HALVES: bool = false;
    /// Quants 64 p .. 64 p + 64: of two blocks of 32 one after the other, or by their halves.
    #[inline(always)]
    unsafe fn pair(unit: *const u8, p: usize) -> [__m256i; 2] {
        // SAFETY: as the trait asks.
        unsafe { [Self::quants(unit, 2 * p), Self::quants(unit, 2 * p + 1)] }
    }
    /// Quants 64 j .. 64 j + 64, unsigned.
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i;
}

/// Up to 16 lanes, in two halves.
#[derive(Clone, Copy)]
pub(crate) struct Scales {
    pub scale: [__m256; 2],
    /// Used where `OFFSET` is 0.
    pub min: [__m256; 2],
}

/// Four blocks' leading 32-bit words. Blends of broadcasts, as they need no shuffle.
#[inline(always)]
unsafe fn four_words(unit: *const u8, bytes: usize) -> __m128i {
    // SAFETY: by the caller, four blocks of `bytes`, at least 4, are readable.
    unsafe {
        let word = |i: usize| _mm_set1_epi32(unit.add(i * bytes).cast::<i32>().read_unaligned());
        _mm_blend_epi32::<0b1100>(
            _mm_blend_epi32::<0b0010>(word(0), word(1)),
            _mm_blend_epi32::<0b1000>(word(2), word(3)),
        )
    }
}

/// The lower halves of four words, then the upper ones.
#[inline(always)]
unsafe fn halves_apart(words: __m128i) -> __m128i {
    // SAFETY: by the caller, AVX2 is there.
    unsafe { _mm_shuffle_epi8(words, _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)) }
}

/// Four blocks' leading 16-bit words as f32 in the lower lanes.
#[inline(always)]
unsafe fn four_halves(unit: *const u8, bytes: usize) -> __m256 {
    // SAFETY: by the caller, four blocks of `bytes`, at least 4, are readable.
    unsafe { _mm256_castps128_ps256(_mm_cvtph_ps(halves_apart(four_words(unit, bytes)))) }
}

#[inline(always)]
unsafe fn nibbles(bytes: *const u8) -> __m256i {
    // SAFETY: by the caller, 16 bytes are readable.
    unsafe {
        let packed = _mm_loadu_si128(bytes.cast());
        let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(packed), _mm_srli_epi16::<4>(packed));
        _mm256_and_si256(both, _mm256_set1_epi8(15))
    }
}

/// The nibbles of two blocks, `step` bytes apart: both blocks' lower halves, both blocks' upper halves.
#[inline(always)]
unsafe fn nibble_halves(bytes: *const u8, step: usize) -> [__m256i; 2] {
    // SAFETY: by the caller, 16 bytes are readable at 0 and at `step`.
    unsafe {
        let both = two_lanes(bytes, bytes.add(step));
        let low = _mm256_set1_epi8(15);
        [_mm256_and_si256(both, low), _mm256_and_si256(_mm256_srli_epi16::<4>(both), low)]
    }
}

/// 16 bytes of each.
#[inline(always)]
unsafe fn two_lanes(a: *const u8, b: *const u8) -> __m256i {
    // SAFETY: by the caller, 16 bytes are readable at each.
    unsafe {
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(_mm_loadu_si128(a.cast())), _mm_loadu_si128(b.cast()))
    }
}

/// Activations 64 p .. 64 p + 64 of a unit that starts at `from`, as [`Load::pair`] has its quants.
///
/// # Safety
/// AVX2 is there, and all are readable.
#[inline(always)]
pub(super) unsafe fn act_pair<F: Load>(from: *const i8, p: usize) -> [__m256i; 2] {
    // SAFETY: by the caller.
    unsafe {
        let from = from.add(64 * p).cast::<u8>();
        if F::HALVES {
            [two_lanes(from, from.add(32)), two_lanes(from.add(16), from.add(48))]
        } else {
            [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())]
        }
    }
}

/// The scales of a unit's groups so that each can be spread by a permutation within lanes ([`spread`]).
///
/// # Safety
/// AVX2 is there.
#[inline(always)]
pub(super) unsafe fn arrange<F: Load>(scale: [__m256; 2]) -> [__m256; 2] {
    // SAFETY: by the caller.
    unsafe {
        let [low, high] = scale;
        if F::HALVES {
            // Groups 0 and 2 below, 1 and 3 above.
            let four = _mm256_castps256_ps128(low);
            [_mm256_insertf128_ps::<1>(low, _mm_movehdup_ps(four)), high]
        } else if F::UNIT == 128 {
            [_mm256_insertf128_ps::<1>(low, _mm256_castps256_ps128(low)), high]
        } else if F::GROUP == 32 {
            [_mm256_permute2f128_ps::<0x00>(low, low), _mm256_permute2f128_ps::<0x11>(low, low)]
        } else {
            // Even groups below, odd ones above.
            let order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
            [_mm256_permutevar8x32_ps(low, order), _mm256_permutevar8x32_ps(high, order)]
        }
    }
}

/// The scales of block `j` of 32 (with halves: of blocks `j` and `j + 1`), each in the lanes of its group's sums.
///
/// # Safety
/// AVX2 is there.
#[inline(always)]
pub(super) unsafe fn spread(arranged: &[__m256; 2], j: usize) -> __m256 {
    // SAFETY: by the caller.
    unsafe { _mm256_permutevar_ps(arranged[j / 4], _mm256_set1_epi32((j % 4) as i32)) }
}

/// The nibbles of two blocks, `step` bytes apart.
#[inline(always)]
unsafe fn nibbles_512(bytes: *const u8, step: usize) -> __m512i {
    // SAFETY: by the caller, 16 bytes are readable at 0 and at `step`.
    unsafe {
        let a = _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.cast()));
        let b = _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.add(step).cast()));
        let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b);
        let shifted = _mm512_srlv_epi64(both, _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0));
        _mm512_and_si512(shifted, _mm512_set1_epi8(15))
    }
}

impl Load for Q4_0 {
    const UNIT: usize = 128;
    const OFFSET: [f32; 2] = [-8.0, -8.0];
    #[inline(always)]
    unsafe fn scales(unit: *const u8) -> Scales {
        // SAFETY: as the trait asks.
        unsafe { Scales { scale: [four_halves(unit, 18), _mm256_setzero_ps()], min: [_mm256_setzero_ps(); 2] } }
    }
    #[inline(always)]
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i {
        // SAFETY: as the trait asks.
        unsafe { nibbles(unit.add(18 * j + 2)) }
    }
    const HALVES: bool = true;
    #[inline(always)]
    unsafe fn pair(unit: *const u8, p: usize) -> [__m256i; 2] {
        // SAFETY: as the trait asks.
        unsafe { nibble_halves(unit.add(36 * p + 2), 18) }
    }
    #[inline(always)]
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i {
        // SAFETY: as the trait asks.
        unsafe { nibbles_512(unit.add(36 * j + 2), 18) }
    }
}

impl Load for Q4_1 {
    const UNIT: usize = 128;
    const OFFSET: [f32; 2] = [0.0; 2];
    #[inline(always)]
    unsafe fn scales(unit: *const u8) -> Scales {
        // SAFETY: as the trait asks.
        unsafe {
            let both = _mm256_cvtph_ps(halves_apart(four_words(unit, 20)));
            let min = _mm256_castps128_ps256(_mm256_extractf128_ps::<1>(both));
            Scales { scale: [both, _mm256_setzero_ps()], min: [min, _mm256_setzero_ps()] }
        }
    }
    #[inline(always)]
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i {
        // SAFETY: as the trait asks.
        unsafe { nibbles(unit.add(20 * j + 4)) }
    }
    const HALVES: bool = true;
    #[inline(always)]
    unsafe fn pair(unit: *const u8, p: usize) -> [__m256i; 2] {
        // SAFETY: as the trait asks.
        unsafe { nibble_halves(unit.add(40 * p + 4), 20) }
    }
    #[inline(always)]
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i {
        // SAFETY: as the trait asks.
        unsafe { nibbles_512(unit.add(40 * j + 4), 20) }
    }
}

impl Load for Q8_0 {
    const UNIT: usize = 128;
    const OFFSET: [f32; 2] = [0.0, -128.0];
    #[inline(always)]
    unsafe fn scales(unit: *const u8) -> Scales {
        // SAFETY: as the trait asks.
        unsafe { Scales { scale: [four_halves(unit, 34), _mm256_setzero_ps()], min: [_mm256_setzero_ps(); 2] } }
    }
    #[inline(always)]
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i {
        // SAFETY: as the trait asks.
        unsafe { _mm256_loadu_si256(unit.add(34 * j + 2).cast()) }
    }
    #[inline(always)]
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i {
        // SAFETY: as the trait asks.
        unsafe {
            let (a, b) = (unit.add(68 * j + 2), unit.add(68 * j + 36));
            let a = _mm512_castsi256_si512(_mm256_loadu_si256(a.cast()));
            let both = _mm512_inserti64x4::<1>(a, _mm256_loadu_si256(b.cast()));
            _mm512_xor_si512(both, _mm512_set1_epi8(-128))
        }
    }
}

impl Load for Q4K {
    const UNIT: usize = 256;
    const OFFSET: [f32; 2] = [0.0; 2];
    #[inline(always)]
    unsafe fn scales(unit: *const u8) -> Scales {
        // SAFETY: as the trait asks.
        unsafe {
            let half = |at: usize| half_to_f32(unit.add(at).cast::<u16>().read_unaligned());
            let word = |at: usize| unit.add(at).cast::<u32>().read_unaligned();
            // The packing that `format::Q4K` explains, four bytes at a time.
            let (s, m, high) = (word(4), word(8), word(12));
            let (six, four, two) = (0x3f3f_3f3f, 0x0f0f_0f0f, 0x0303_0303);
            let (s_low, s_high) = (s & six, (high & four) | (((s >> 6) & two) << 4));
            let (m_low, m_high) = (m & six, ((high >> 4) & four) | (((m >> 6) & two) << 4));
            let bytes = |low: u32, high: u32| _mm_cvtsi64_si128((u64::from(low) | (u64::from(high) << 32)) as i64);
            let scale = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes(s_low, s_high)));
            let min = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes(m_low, m_high)));
            Scales {
                scale: [_mm256_mul_ps(scale, _mm256_set1_ps(half(0))), _mm256_setzero_ps()],
                min: [_mm256_mul_ps(min, _mm256_set1_ps(-half(2))), _mm256_setzero_ps()],
            }
        }
    }
    #[inline(always)]
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i {
        // SAFETY: as the trait asks.
        unsafe {
            let packed = _mm256_loadu_si256(unit.add(16 + 32 * (j / 2)).cast());
            let packed = if j.is_multiple_of(2) { packed } else { _mm256_srli_epi16::<4>(packed) };
            _mm256_and_si256(packed, _mm256_set1_epi8(15))
        }
    }
    #[inline(always)]
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i {
        // SAFETY: as the trait asks.
        unsafe {
            let both = _mm512_broadcast_i64x4(_mm256_loadu_si256(unit.add(16 + 32 * j).cast()));
            let shifted = _mm512_srlv_epi64(both, _mm512_set_epi64(4, 4, 4, 4, 0, 0, 0, 0));
            _mm512_and_si512(shifted, _mm512_set1_epi8(15))
        }
    }
}

impl Load for Q6K {
    const UNIT: usize = 256;
    const OFFSET: [f32; 2] = [-32.0, -32.0];
    #[inline(always)]
    unsafe fn scales(unit: *const u8) -> Scales {
        // SAFETY: as the trait asks.
        unsafe {
            let d = _mm256_set1_ps(half_to_f32(unit.add(208).cast::<u16>().read_unaligned()));
            let scale = |at: usize| {
                let bytes = _mm_loadl_epi64(unit.add(at).cast());
                _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), d)
            };
            Scales { scale: [scale(192), scale(200)], min: [_mm256_setzero_ps(); 2] }
        }
    }
    #[inline(always)]
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i {
        // SAFETY: as the trait asks.
        unsafe {
            let low = _mm256_loadu_si256(unit.add(64 * (j / 4) + 32 * (j % 2)).cast());
            let high = _mm256_loadu_si256(unit.add(128 + 32 * (j / 4)).cast());
            let low = if j % 4 < 2 { low } else { _mm256_srli_epi16::<4>(low) };
            let high = match j % 4 {
                0 => _mm256_slli_epi16::<4>(high),
                1 => _mm256_slli_epi16::<2>(high),
                2 => high,
                _ => _mm256_srli_epi16::<2>(high),
            };
            let low = _mm256_and_si256(low, _mm256_set1_epi8(0x0f));
            _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)))
        }
    }
    #[inline(always)]
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i {
        // SAFETY: as the trait asks.
        unsafe {
            let low = _mm512_loadu_si512(unit.add(64 * (j / 2)).cast());
            let high = _mm512_broadcast_i64x4(_mm256_loadu_si256(unit.add(128 + 32 * (j / 2)).cast()));
            let (low, high) = if j.is_multiple_of(2) {
                (low, _mm512_sllv_epi64(high, _mm512_set_epi64(2, 2, 2, 2, 4, 4, 4, 4)))
            } else {
                (_mm512_srli_epi16::<4>(low), _mm512_srlv_epi64(high, _mm512_set_epi64(2, 2, 2, 2, 0, 0, 0, 0)))
            };
            let low = _mm512_and_si512(low, _mm512_set1_epi8(0x0f));
            _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(0x30)))
        }
    }
}

/// Bytes of the largest unit: 4 blocks of Q8_0 are 136, a Q6_K block 210.
const UNIT_BYTES: usize = 210;

/// Scales and sums of one activation row's unit, zero where the row has ended.
#[inline(always)]
pub(super) unsafe fn act_lanes<F: Load>(acts: &ActivationsQ8, at: usize, left: usize) -> ([__m256; 2], [__m256; 2]) {
    // SAFETY: by the caller, `left` elements (at least one block) follow `at`, a multiple of 32.
    unsafe {
        let zero = _mm256_setzero_ps();
        if F::UNIT == 128 {
            let (scale, sum) = (acts.scale.as_ptr().add(at / 32), acts.sum.as_ptr().add(at / 32));
            let load = |from: *const f32| {
                if left >= 128 {
                    return _mm256_castps128_ps256(_mm_loadu_ps(from));
                }
                let lane = |i: usize| if i * 32 < left { *from.add(i) } else { 0.0 };
                _mm256_castps128_ps256(_mm_setr_ps(lane(0), lane(1), lane(2), 0.0))
            };
            ([load(scale), zero], [load(sum), zero])
        } else if F::GROUP == 32 {
            let (scale, sum) = (acts.scale.as_ptr().add(at / 32), acts.sum.as_ptr().add(at / 32));
            ([_mm256_loadu_ps(scale), zero], [_mm256_loadu_ps(sum), zero])
        } else {
            let (scale, sum) = (acts.scale.as_ptr().add(at / 32), acts.half_sum.as_ptr().add(at / 16));
            let scale = _mm256_loadu_ps(scale);
            let twice = |low: i32| _mm256_setr_epi32(low, low, low + 1, low + 1, low + 2, low + 2, low + 3, low + 3);
            let spread = |low: i32| _mm256_permutevar8x32_ps(scale, twice(low));
            ([spread(0), spread(4)], [_mm256_loadu_ps(sum), _mm256_loadu_ps(sum.add(8))])
        }
    }
}

/// Calls `unit(pointers, element offset, elements left)` over `R` rows of `row` bytes from `start` on. The last unit of a row
/// may reach into the next one; where there is none, it is a padded copy.
#[inline(always)]
pub(super) fn for_units<F: Load, const R: usize>(
    weights: &[u8],
    start: usize,
    row: usize,
    k: usize,
    mut unit: impl FnMut([*const u8; R], usize, usize),
) {
    let unit_bytes = F::UNIT / F::ELEMS * F::BYTES;
    let end = start + (R - 1) * row + k.div_ceil(F::UNIT) * unit_bytes;
    let inside = end <= weights.len();
    let mut padded = [MaybeUninit::uninit(); R];
    for at in (0..k).step_by(F::UNIT) {
        let mut pointers = [std::ptr::null(); R];
        for (r, pointer) in pointers.iter_mut().enumerate() {
            let from = start + r * row + at / F::ELEMS * F::BYTES;
            *pointer = weights.as_ptr().wrapping_add(from);
            if !inside && from + unit_bytes > weights.len() {
                *pointer = pad(&weights[from..], &mut padded[r]);
            }
        }
        unit(pointers, at, k - at);
    }
}

/// Copies what is left of a last unit, less than one.
#[cold]
#[inline(never)]
fn pad(rest: &[u8], to: &mut MaybeUninit<[u8; UNIT_BYTES]>) -> *const u8 {
    let to = to.write([0; UNIT_BYTES]);
    to[..rest.len()].copy_from_slice(rest);
    to.as_ptr()
}

/// The unit's scales, with zeros for the blocks past the row's end, whose bytes are another row's.
#[inline(always)]
pub(super) unsafe fn scales_until<F: Load>(unit: *const u8, left: usize) -> Scales {
    // SAFETY: as `Load` asks.
    unsafe {
        let mut scales = F::scales(unit);
        if F::UNIT == 128 && left < 128 {
            let index = _mm256_setr_epi32(0, 32, 64, 96, 128, 128, 128, 128);
            let inside = _mm256_cmpgt_epi32(_mm256_set1_epi32(left as i32), index);
            scales.scale[0] = _mm256_and_ps(scales.scale[0], _mm256_castsi256_ps(inside));
            scales.min[0] = _mm256_and_ps(scales.min[0], _mm256_castsi256_ps(inside));
        }
        scales
    }
}

/// Where min = OFFSET * scale, that product; else the format's own minima.
#[inline(always)]
pub(super) unsafe fn minima(scales: &Scales, offset: f32) -> [__m256; 2] {
    // SAFETY: by the caller, AVX is there.
    unsafe {
        if offset == 0.0 { scales.min } else { scales.scale.map(|scale| _mm256_mul_ps(scale, _mm256_set1_ps(offset))) }
    }
}

#[inline(always)]
pub(super) unsafe fn add_minima(acc: __m256, min: [__m256; 2], sum: [__m256; 2], group: usize) -> __m256 {
    // SAFETY: by the caller, AVX2 and FMA are there.
    unsafe {
        let acc = _mm256_fmadd_ps(min[0], sum[0], acc);
        if group == 16 { _mm256_fmadd_ps(min[1], sum[1], acc) } else { acc }
    }
}

/// The lanes that minima used: four for the 32-element formats (the others may hold anything).
#[inline(always)]
pub(super) unsafe fn minima_sum<F: Load>(acc: __m256) -> f32 {
    // SAFETY: by the caller, AVX is there.
    unsafe {
        let low = _mm256_castps256_ps128(acc);
        let lanes = if F::UNIT == 128 { low } else { _mm_add_ps(low, _mm256_extractf128_ps::<1>(acc)) };
        sum_128(lanes)
    }
}

#[inline(always)]
pub(super) unsafe fn sum_128(lanes: __m128) -> f32 {
    // SAFETY: SSE is part of x86-64.
    unsafe {
        let pair = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
        _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps::<1>(pair, pair)))
    }
}
