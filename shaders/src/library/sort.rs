//! Sorting: tiles in workgroup memory, then merges over a scratch buffer; see `sort.wgsl`. The launches are the same for
//! all sizes, and those that a run has no use for have an empty grid.
//!
//! Uniform block: the step's 7 words, then the four of [`Sizes::words`].

use super::{
    Shader, Target,
    axes::{Three, operand, take, wide},
    code::{Code, fill_words, param},
    preprocess::{Defines, expand},
    spread,
};
use smallvec::{SmallVec, smallvec};
use tallow_graph::{DType, Error, Implementation, Result, kernel::SortKernel};

const WORDS: usize = 7;
/// Elements of a tile.
const TILE: u64 = 1024;
/// Merges at most: runs of 2^10 become rows of 2^31.
const MERGES: usize = 21;
/// Words before the pairs in the scratch buffer.
const HEAD: u64 = 4;

/// Rows to be sorted.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    rows: u64,
    n: u64,
}

impl Sizes {
    /// Of [outer, along, inner], along the middle.
    pub fn of(three: Three) -> Self {
        Self { rows: three.rows(), n: three.n }
    }

    /// The power of two that holds a row, at most a tile.
    fn segment(self) -> u64 {
        self.n.clamp(1, TILE).next_power_of_two()
    }

    fn tiles(self) -> u64 {
        self.n.div_ceil(TILE).max(1)
    }

    /// Merges that follow the tiles.
    pub fn merges(self) -> u32 {
        self.tiles().next_power_of_two().trailing_zeros()
    }

    /// ROWS, N, M and TILES.
    pub fn words(self) -> [u32; 4] {
        [self.rows as u32, self.n as u32, self.segment() as u32, self.tiles() as u32]
    }

    /// Bytes of the scratch buffer for keys of `key` words; never 0, since whether there is one is structure. `emit`:
    /// short rows go to the output at once.
    pub fn scratch(self, key: u64, emit: bool) -> u64 {
        let pairs = if emit && self.tiles() == 1 { 0 } else { self.rows.saturating_mul(self.n) };
        pairs.saturating_mul(2 * (key + 1)).saturating_add(HEAD).saturating_mul(4)
    }

    /// That a u32 numbers all words of the scratch buffer.
    pub fn check(self, kernel: &'static str, key: u64, emit: bool) -> Result<()> {
        if self.scratch(key, emit) / 4 < 1 << 32 {
            return Ok(());
        }
        Err(Error::op(
            kernel,
            format!("{} rows of {} elements are too many at once: split the tensor", self.rows, self.n),
        ))
    }

    /// A grid for each entry point.
    pub fn grids(self, target: &Target) -> SmallVec<[[u32; 3]; 2]> {
        let groups = match self.tiles() {
            _ if self.n == 0 => 0,
            1 => self.rows.div_ceil(TILE / self.segment()),
            tiles => self.rows.saturating_mul(tiles),
        };
        let merge = self.rows.saturating_mul(self.n.div_ceil(8)).div_ceil(64);
        let mut grids = smallvec![spread(groups, target)];
        for number in 0..MERGES {
            grids.push(if number < self.merges() as usize { spread(merge, target) } else { [0; 3] });
        }
        grids
    }

    /// Microseconds on a GPU that moves 1 TB/s; on a CPU that does a GPU's work.
    pub fn cost(self, target: &Target) -> f32 {
        let (elements, merges) = (self.rows as f32 * self.n as f32, self.merges() as f32);
        if target.software {
            return 1.0 + elements * (self.segment() as f32).log2() * 0.5 + merges * (50.0 + elements * 0.2);
        }
        4.0 + merges * 5.0 + elements * (merges * 5e-5 + 5e-4)
    }
}

/// The entry points, in order.
pub fn entries() -> SmallVec<[&'static str; 2]> {
    let merges = ["merge0", "merge1"].into_iter().cycle().take(MERGES);
    std::iter::once("tile").chain(merges).collect()
}

/// The code of all entry points, for keys of `key` words. `key_of` and `less` are the caller's; `sizes_at` is where the
/// words of [`Sizes`] stand in the uniform block. With `inner` (an expression), positions are written to the output.
pub fn body(key: u64, sizes_at: usize, inner: Option<String>) -> Result<String> {
    let long = key == 2;
    let mut defines = Defines::default();
    defines
        .set("ROWS", param(sizes_at))
        .set("N", param(sizes_at + 1))
        .set("M", param(sizes_at + 2))
        .set("TILES", param(sizes_at + 3))
        .set("K", if long { "vec2<u32>" } else { "u32" })
        .set("LAST", if long { "vec2<u32>(0xffffffffu)" } else { "0xffffffffu" })
        .set("PAIR", key + 1)
        .flag("LONG", long)
        .flag("EMIT", inner.is_some())
        .set("INNER", inner.unwrap_or_default());
    expand("sort.wgsl", &defines)
}

/// The function `less(a, b)` of keys.
pub fn less(code: &mut Code, key: u64) {
    let (ty, value) = if key == 2 { ("vec2<u32>", "t_lt_u64(a, b)") } else { ("u32", "a < b") };
    code.function("less", || format!("fn less(a: {ty}, b: {ty}) -> bool {{\n    return {value};\n}}\n"));
}

fn key_words(kernel: &SortKernel) -> u64 {
    super::axes::words_of(kernel.dtype)
}

/// The ways to run it.
pub fn implementations(kernel: &SortKernel, words: &[i64], target: &Target) -> SmallVec<[Implementation; 2]> {
    if !wide(kernel.dtype) || target.max_workgroup_invocations < 256 {
        return SmallVec::new();
    }
    let sizes = Sizes::of(Three::of(words).unwrap_or_default());
    smallvec![Implementation { id: 0, scratch: sizes.scratch(key_words(kernel), true), cost: sizes.cost(target) }]
}

/// The uniform block.
pub fn params(kernel: &SortKernel, words: &[i64], out: &mut Vec<u32>) -> Result<()> {
    let words = take("sort", words, WORDS)?;
    fill_words("sort", words, out)?;
    let sizes = Sizes::of(Three::checked(words, "sort")?);
    sizes.check("sort", key_words(kernel), true)?;
    out.extend(sizes.words());
    Ok(())
}

/// The grids.
pub fn grids(_: &SortKernel, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    Sizes::of(Three::of(words).unwrap_or_default()).grids(target)
}

/// Statements that make the `key` of unsigned order from an element's `bits`.
fn key(dtype: DType) -> &'static str {
    match dtype {
        // Negative floats in reverse; -0 as 0; every NaN as the largest.
        DType::F32 => {
            "    let magnitude = bits & 0x7fffffffu;\n    var key = select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);\n    \
             key = select(key, 0x80000000u, magnitude == 0u);\n    key = select(key, 0xffffffffu, magnitude > 0x7f800000u);\n"
        }
        DType::I32 => "    let key = bits ^ 0x80000000u;\n",
        DType::I64 => "    let key = vec2<u32>(bits.x, bits.y ^ 0x80000000u);\n",
        _ => "    let key = bits;\n",
    }
}

/// The shader.
pub fn shader(kernel: &SortKernel, target: &Target) -> Result<Shader> {
    let param_words = WORDS + 4;
    let mut code = Code::new(1, 1, param_words);
    code.scratch = true;
    let words = key_words(kernel);
    let (bits, ty) = if words == 2 { (DType::U64, "vec2<u32>") } else { (DType::U32, "u32") };
    less(&mut code, words);
    let mut defines = Defines::default();
    operand(&mut defines, "SOURCE", 3);
    defines
        .set("INNER", param(2))
        .set("LOAD", code.load(0, bits)?)
        .set("KEY", key(kernel.dtype))
        .set("RESULT", if kernel.descending { "~key" } else { "key" })
        .set("K", ty);
    let text = "fn key_of(row: u32, i: u32) -> ${K} {\n    let bits = ${LOAD}(${SOURCE} + (row / ${INNER}) * ${SOURCE_O} + i * \
                ${SOURCE_N} + (row % ${INNER}) * ${SOURCE_J});\n${KEY}    return ${RESULT};\n}\n";
    code.body = super::preprocess::expand_text("key_of", text, &defines)?;
    code.body += &body(words, WORDS, Some(param(2)))?;
    Ok(Shader {
        label: format!("sort {}", kernel.dtype),
        source: code.finish(target, false),
        entries: entries(),
        inputs: 1,
        outputs: 1,
        scratch: true,
        fault: false,
        param_words,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_fit_the_rows() {
        let sizes = |rows, n| Sizes { rows, n };
        for (n, segment, tiles, merges) in
            [(0, 1, 1, 0), (1, 1, 1, 0), (5, 8, 1, 0), (1024, 1024, 1, 0), (1025, 1024, 2, 1), (5000, 1024, 5, 3)]
        {
            let s = sizes(7, n);
            assert_eq!((s.segment(), s.tiles(), s.merges()), (segment, tiles, merges), "{n}");
        }
        assert_eq!(sizes(1, (1 << 31) - 1).merges() as usize, MERGES);
        assert_eq!(entries().len(), MERGES + 1);
        assert!(sizes(1, 1 << 30).check("sort", 1, true).is_err());
        assert!(sizes(1 << 30, 1).check("sort", 1, true).is_ok());
        assert!(sizes(3, 4).scratch(1, true) > 0);
    }
}
