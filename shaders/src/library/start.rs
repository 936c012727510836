//! Which way to run products and attention before anything was measured, by the maker of the GPU. A measurement (tune.rs of
//! the host) overrules the table; browsers, which are not measured, keep it.
//!
//! The figures behind it are the makers' own. Registers: a tile of 128 x 64 takes some 60 for each invocation (32 sums, 12
//! operands, addresses), one of 64 x 64 some 40. Subgroups: a matrix-vector product reduced by subgroup has workgroups of the
//! smallest subgroup, which leaves lanes idle where the driver picks a larger one.
//!
//! | maker    | subgroup  | registers                              | workgroup memory          |
//! |----------|-----------|----------------------------------------|---------------------------|
//! | NVIDIA   | 32        | 65,536 a multiprocessor, 255 at most   | 48 KB and more, dedicated |
//! | AMD      | 32 or 64  | 256 at most, 1,024 and more a lane     | 64 KB, dedicated          |
//! | Intel    | 8 to 32   | 128 of 32 or 64 bytes: 64 in SIMD32    | 64 KB and more, dedicated |
//! | Apple    | 32        | some 208 KB a core                     | 32 KB, dedicated          |
//! | mobile   | 16 to 128 | 64 (Mali; above 32 half the threads)   | 32 KB; Mali: ordinary, cached memory |
//! | software | 4 to 8    | the CPU's                              | ordinary memory; barriers are dear   |

use super::{Target, Vendor, attention, contract};
use tallow_graph::Implementation;

/// Implementation numbers: of products with many rows (where tiles fill the GPU), of those with one row or few, of
/// attention with many queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) gemm: u32,
    pub(super) matvec: u32,
    pub(super) attention: u32,
}

/// The table's row for a device.
pub(super) const fn start(target: &Target) -> Start {
    if target.software {
        // No barriers, no workgroup memory.
        return Start { gemm: contract::SERIAL, matvec: contract::SERIAL, attention: attention::SERIAL };
    }
    match target.vendor {
        // Registers for four workgroups of tall tiles; subgroups of one size.
        Vendor::Nvidia => Start { gemm: contract::TALL, matvec: contract::SUBGROUP, attention: attention::TILES },
        // Registers in plenty; 64 invocations are whole subgroups, whichever size the driver picks.
        Vendor::Amd => Start { gemm: contract::TALL, matvec: contract::SHARED, attention: attention::TILES },
        // 64 registers in SIMD32: tall tiles would spill. The smallest subgroup, of 8, is too few for a column.
        Vendor::Intel => Start { gemm: contract::SHARED, matvec: contract::SHARED, attention: attention::TILES },
        // Registers for three workgroups of tall tiles; subgroups of one size.
        Vendor::Apple => Start { gemm: contract::TALL, matvec: contract::SUBGROUP, attention: attention::TILES },
        // Few registers; memory that is no faster than the cache gains nothing by attention's tiles.
        Vendor::Mobile => Start { gemm: contract::SHARED, matvec: contract::SHARED, attention: attention::SHARED },
        // What asks least of the hardware and still uses it.
        Vendor::Other => Start { gemm: contract::SHARED, matvec: contract::SHARED, attention: attention::TILES },
    }
}

/// Makes a way the one that estimates choose, if the device has it.
pub(super) fn favour(ways: &mut [Implementation], id: u32) {
    let least = ways.iter().map(|way| way.cost).fold(f32::INFINITY, f32::min);
    if let Some(way) = ways.iter_mut().find(|way| way.id == id) {
        way.cost = way.cost.min(least * 0.99);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::{Coop, implementations};
    use smallvec::smallvec;
    use tallow_graph::{
        DType, Expr, Inst, Kernel,
        kernel::{Activations, AttentionKernel, ContractKernel, ContractPart, RightUnit, RowClass},
    };

    /// A usual device of each maker, by the limits that their drivers give.
    fn usual() -> Vec<Target> {
        let device = |vendor, subgroups, max_workgroup_storage, invocations| Target {
            f16: true,
            subgroups: Some(subgroups),
            packed_dot: true,
            coop: Coop::default(),
            naga: true,
            max_workgroup_invocations: invocations,
            max_workgroup_storage,
            max_storage_buffers: 8,
            max_dispatch: 65_535,
            software: false,
            vendor,
        };
        vec![
            device(Vendor::Nvidia, (32, 32), 49_152, 1024),
            device(Vendor::Amd, (32, 64), 65_536, 1024),
            device(Vendor::Intel, (8, 32), 65_536, 1024),
            device(Vendor::Apple, (32, 32), 32_768, 1024),
            // The least of both: Mali's and Adreno's.
            device(Vendor::Mobile, (16, 128), 32_768, 256),
            // What WebGPU guarantees.
            Target { subgroups: None, f16: false, ..device(Vendor::Other, (4, 128), 16_384, 256) },
            Target { software: true, ..device(Vendor::Other, (8, 8), 32_768, 1024) },
        ]
    }

    fn product(rows: RowClass, right: DType) -> Kernel {
        let mut epilogue = Expr::default();
        epilogue.push(Inst::Acc(0), DType::F32);
        Kernel::Contract(ContractKernel {
            batch: 0,
            left: (0, DType::F32),
            left_rows: true,
            rows,
            vector: true,
            prologue: None,
            activations: Activations::F32,
            parts: smallvec![ContractPart {
                right: (1, right),
                right_unit: RightUnit::K,
                paired: false,
                operands: smallvec![],
                epilogue,
            }],
        })
    }

    fn chosen(kernel: &Kernel, words: &[i64], target: &Target) -> u32 {
        let ways = implementations(kernel, words, target);
        ways.iter().min_by(|a, b| a.cost.total_cmp(&b.cost)).unwrap().id
    }

    #[test]
    fn every_entry_is_a_way_that_the_device_has_and_is_chosen() {
        for target in usual() {
            let start = start(&target);
            let what = format!("{:?}, software {}", target.vendor, target.software);
            for right in [DType::F32, DType::F16, DType::Q4_0, DType::Q6K] {
                let words = |m| [m, 4096, 0, 4096, 1, 4096, 0, 1, 4096];
                assert_eq!(
                    chosen(&product(RowClass::Many, right), &words(4096), &target),
                    start.gemm,
                    "{what} {right}"
                );
                assert_eq!(chosen(&product(RowClass::One, right), &words(1), &target), start.matvec, "{what} {right}");
            }
            let attention = AttentionKernel {
                dtype: DType::F32,
                kv_dtype: DType::F32,
                rows: RowClass::Many,
                causal: true,
                window: false,
                softcap: false,
                mask: false,
            };
            let words: Vec<i64> = [1, 512, 512, 16, 4, 64, 64].into_iter().chain([0; 16]).collect();
            assert_eq!(chosen(&Kernel::Attention(attention), &words, &target), start.attention, "{what}");
        }
    }

    /// A product too small to fill the device is split, whatever the table says of large ones; and cooperative matrices go
    /// before registers.
    #[test]
    fn small_products_and_better_hardware_go_first() {
        for target in usual().into_iter().filter(|target| !target.software) {
            let words = [32, 4096, 0, 4096, 1, 256, 0, 1, 4096];
            let way = chosen(&product(RowClass::Many, DType::F32), &words, &target);
            // A mobile GPU is so small that splitting may not pay.
            let splits = matches!(way, contract::SPLIT | contract::TALL);
            assert!(splits || target.vendor == Vendor::Mobile, "{:?}: {way}", target.vendor);
            let Kernel::Contract(mut kernel) = product(RowClass::Many, DType::F16) else { unreachable!() };
            kernel.left.1 = DType::F16;
            let target = Target { coop: Coop { f16: 16, f32: 0 }, ..target };
            let has = target.f16 && target.subgroups.is_some();
            let words = [4096, 4096, 0, 4096, 1, 4096, 0, 1, 4096];
            let way = chosen(&Kernel::Contract(kernel), &words, &target);
            assert_eq!(matches!(way, contract::COOP | contract::COOP_TALL), has, "{:?}: {way}", target.vendor);
        }
    }
}
