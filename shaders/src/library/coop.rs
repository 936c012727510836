//! Products by cooperative matrices (tier T4): the hardware's own multiplication of small matrices, which a subgroup holds
//! and multiplies together. Tensor cores of NVIDIA, WMMA of AMD, simdgroup matrices of Apple; natively only.
//!
//! Operands go through workgroup memory as f16 or f32, and sums are always f32: sums in f16 overflow. Everything but the
//! multiplication itself is shared with the register tiles: loaders, edges, split-K, epilogues.

use super::{Target, contract::quantized, preprocess::Defines, tiles::Tile};
use std::fmt::Write as _;
use tallow_graph::{DType, kernel::ContractKernel};

/// Sides of the square matrices that a device multiplies, into sums in f32; 0 where it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Coop {
    /// Of operands in f16: 16 with NVIDIA and AMD, 8 with Apple.
    pub f16: u32,
    /// Of operands in f32: 8 with Apple.
    pub f32: u32,
}

impl Coop {
    /// Whether there are any.
    pub const fn any(self) -> bool {
        self.f16 > 0 || self.f32 > 0
    }
}

/// How a tile is cut among subgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The side of a matrix.
    size: u32,
    /// Operands in f16, or in f32.
    half: bool,
    /// Pieces of a tile, in two columns of 32: as many as a workgroup of 256 has subgroups.
    tasks: u32,
}

impl Plan {
    /// The matrices that compute this product on this device, if it has any of use. F16 stays as it is, and weights of 4 to
    /// 8 bits lose nothing that their own rounding did not lose; a left operand in f32 stays f32, since f16 ends at 65504.
    pub fn of(kernel: &ContractKernel, target: &Target) -> Option<Self> {
        let (_, widest) = target.subgroups.filter(|&(_, most)| most <= 128)?;
        let fits = |dtype: DType| dtype == DType::F16 || dtype.is_quantized();
        let exact = kernel.left.1 == DType::F16 && kernel.parts.iter().all(|part| fits(part.right.1));
        let (size, half) =
            if exact && target.f16 && target.coop.f16 > 0 { (target.coop.f16, true) } else { (target.coop.f32, false) };
        // 8 bits were asked for.
        let rounded = !half && kernel.parts.iter().any(|part| super::contract::q8(kernel, part));
        let plan = Self { size, half, tasks: 256 / widest.clamp(32, 64) };
        (matches!(size, 8 | 16) && !rounded).then_some(plan)
    }

    /// Elements from row to row of a tile in workgroup memory: 16 bytes more than it has, so that rows begin at different
    /// banks and whole vectors.
    const fn stride(self, tile: Tile) -> u32 {
        tile.k + if self.half { 8 } else { 4 }
    }

    const fn element(self) -> &'static str {
        if self.half { "f16" } else { "f32" }
    }

    /// Bytes of workgroup memory.
    pub const fn bytes(self, tile: Tile) -> u32 {
        let operands = (tile.rows() + 64) * self.stride(tile) * if self.half { 2 } else { 4 };
        operands + self.tasks * self.size * self.size * 4
    }

    /// The language extensions that it needs.
    pub fn enables(self) -> &'static [&'static str] {
        if self.half { &["f16", "wgpu_cooperative_matrix"] } else { &["wgpu_cooperative_matrix"] }
    }

    /// What matmul.wgsl is to know.
    pub fn define(self, tile: Tile, defines: &mut Defines) {
        let rows = tile.rows() * 2 / self.tasks;
        defines
            .flag("COOP", true)
            .set("E", self.element())
            .set("S", self.size)
            .set("SQ", self.size * self.size)
            .set("LD", self.stride(tile))
            .set("TASKS", self.tasks)
            .set("TASK_ROWS", rows)
            .set("TR", rows / self.size)
            .set("TC", 32 / self.size)
            .set("CELLS", self.tasks * self.size * self.size);
    }

    /// Workgroup memory, and how 8 neighbours along k get there.
    pub fn memory(self, tile: Tile, quantized_right: bool, body: &mut String) {
        let e = self.element();
        let _ = writeln!(body, "var<private> own_subgroup: u32;\nvar<private> all_subgroups: u32;");
        let cells = self.tasks * self.size * self.size;
        let _ = writeln!(body, "var<workgroup> tile_c: array<f32, {cells}>;");
        for (name, rows, clamp) in [("a", tile.rows(), false), ("b", 64, quantized_right)] {
            let _ = writeln!(body, "var<workgroup> tile_{name}: array<{e}, {}>;", rows * self.stride(tile));
            let _ = writeln!(body, "fn stage_{name}(at: u32, x: W8) {{");
            for (half, from) in [("a", 0), ("b", 4)] {
                // What a weight's scale makes of it may be more than f16 holds.
                let value = if clamp && self.half {
                    format!("clamp(x.{half}, vec4<f32>(-65504.0), vec4<f32>(65504.0))")
                } else {
                    format!("x.{half}")
                };
                let _ = writeln!(body, "    let {half} = vec4<{e}>({value});");
                for j in 0..4 {
                    let _ = writeln!(body, "    tile_{name}[at + {}u] = {half}[{j}];", from + j);
                }
            }
            body.push_str("}\n");
        }
    }
}

/// The entry point's parameters beyond those of all, and what it does with them first.
pub const BUILTINS: &str = ", @builtin(subgroup_id) subgroup: u32, @builtin(num_subgroups) subgroups: u32";
/// See [`BUILTINS`].
pub const REMEMBER: &str = "    own_subgroup = subgroup;\n    all_subgroups = subgroups;\n";

/// Whether any right operand is quantized.
pub fn any_quantized(kernel: &ContractKernel) -> bool {
    kernel.parts.iter().any(quantized)
}
