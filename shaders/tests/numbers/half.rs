//! F16 at tier T1, where buffers are native, against T0, where they are words: the same bits, for every value that F16
//! has and for what it cannot hold.

use super::harness::*;
use smallvec::smallvec;
use tallow_graph::{
    Backend, BinaryOp, DType, Inst, Kernel, Scalar,
    kernel::{
        Activations, AttentionKernel, ContractKernel, ContractPart, Distribution, GatherKernel, Layout, MapKernel,
        MapPart, RandomKernel, RightUnit, RowClass, RowKernel, RowOp,
    },
};
use tallow_wgpu::{Options, Tier, WgpuBackend};

/// T0 and T1, where the device has f16.
fn tiers() -> Option<(WgpuBackend, WgpuBackend)> {
    let Some(index) = tallow_wgpu::adapters_blocking().len().checked_sub(1) else {
        eprintln!("skipped: wgpu: no adapter");
        return None;
    };
    let open = |tier| WgpuBackend::open_blocking(index, Options { tier, ..Options::default() }).unwrap();
    let (packed, native) = (open(Tier::T0), open(Tier::T1));
    assert!(!packed.target().f16 && native.target().subgroups.is_none() && !native.target().packed_dot);
    if !native.target().f16 && std::env::var_os("TALLOW_WGPU_TIER").is_none() {
        eprintln!("skipped: wgpu tier T1: the adapter has no shader-f16");
        return None;
    }
    Some((packed, native))
}

fn same(tiers: &(WgpuBackend, WgpuBackend), name: &str, kernel: &Kernel, inputs: &[Input], n: usize, words: &[i64]) {
    let scalars = [Scalar::F(0.5), Scalar::F(0.0)];
    let before = [vec![0x3c; 2 * n]];
    for implementation in tiers.1.lower(kernel, words) {
        let [packed, native] = [&tiers.0, &tiers.1]
            .map(|device| run(device, implementation.id, kernel, inputs, &before, words, &scalars).unwrap().remove(0));
        for (i, (p, n)) in packed.chunks_exact(2).zip(native.chunks_exact(2)).enumerate() {
            let [p, n] = [p, n].map(|b| half::f16::from_le_bytes([b[0], b[1]]));
            assert!(
                p.to_bits() == n.to_bits() || (p.is_nan() && n.is_nan()),
                "{name} #{}: element {i} is {n:?} natively, {p:?} packed",
                implementation.id
            );
        }
    }
}

fn map(vector: bool, output: Layout, code: &[(Inst, DType)]) -> Kernel {
    let from = code[0].1;
    let part = MapPart {
        rank: 1,
        vector,
        operands: smallvec![operand(0, from, if output == Layout::Strided { output } else { Layout::Linear })],
        expr: expr(code),
        output,
    };
    Kernel::Map(MapKernel { parts: smallvec![part] })
}

#[test]
fn every_value_passes() {
    let Some(tiers) = tiers() else { return };
    // All 65,536: subnormals, infinities and NaN among them.
    let all = Input::Plain((0..=u16::MAX).flat_map(u16::to_le_bytes).collect());
    let half = DType::F16;
    let sum = [(Inst::Load(0), half), (Inst::Param(0), half), (Inst::Binary(BinaryOp::Mul, 0, 1), half)];
    let inputs = [all];
    for code in [&sum[..1], &sum[..]] {
        same(&tiers, "vector", &map(true, Layout::Linear, code), &inputs, 65_536, &[65_536, 0, 1, 0, 1]);
        same(&tiers, "odd", &map(false, Layout::Linear, code), &inputs, 65_534, &[65_531, 3, 1, 1, 1]);
        same(&tiers, "strided", &map(false, Layout::Strided, code), &inputs, 65_536, &[21_000, 1, 3, 65_535, -3]);
    }
    // What F16 cannot hold, and ties: every upper half of an f32, with lower halves around the middle of two f16.
    let wide: Vec<u8> = (0..=u16::MAX)
        .flat_map(|high| ((u32::from(high) << 16) | (u32::from(high) * 40_503 % 4 * 0x1000)).to_le_bytes())
        .collect();
    let cast = [(Inst::Load(0), DType::F32), (Inst::Cast(0), half)];
    let inputs = [Input::Plain(wide)];
    same(&tiers, "cast by fours", &map(true, Layout::Linear, &cast), &inputs, 65_536, &[65_536, 0, 1, 0, 1]);
    same(&tiers, "cast", &map(false, Layout::Linear, &cast), &inputs, 65_536, &[65_535, 1, 1, 0, 1]);
}

#[test]
fn every_kind_of_kernel() {
    let Some(tiers) = tiers() else { return };
    let mut noise = Noise(200);
    let half = DType::F16;
    for op in [RowOp::Sum, RowOp::Softmax, RowOp::RmsNorm] {
        let kernel = Kernel::Row(RowKernel {
            op,
            outer: 1,
            inner: 1,
            operands: smallvec![operand(0, half, Layout::Strided)],
            before: expr(&[(Inst::Load(0), DType::F32)]),
            after: expr(&[(Inst::Acc(0), DType::F32), (Inst::Cast(0), half)]),
            accumulator: DType::F32,
        });
        let inputs = [Input::Plain(noise.elements(half, 7 * 33 + 1))];
        let n = if op.reduces() { 7 } else { 7 * 33 };
        same(&tiers, &format!("{op:?}"), &kernel, &inputs, n, &[7, 33, 1, 33, 1]);
    }
    for (m, unit, vector) in
        [(1i64, RightUnit::K, true), (5, RightUnit::N, false), (70, RightUnit::K, false), (70, RightUnit::N, true)]
    {
        let (k, n) = (if vector { 64i64 } else { 63 }, if vector { 20i64 } else { 21 });
        let kernel = Kernel::Contract(ContractKernel {
            batch: 0,
            left: (0, half),
            left_rows: true,
            rows: RowClass::of(m as usize),
            vector,
            prologue: None,
            activations: Activations::F32,
            parts: smallvec![ContractPart {
                right: (1, half),
                right_unit: unit,
                paired: false,
                operands: smallvec![operand(2, half, Layout::Strided)],
                epilogue: expr(&[
                    (Inst::Acc(0), DType::F32),
                    (Inst::Load(0), DType::F32),
                    (Inst::Binary(BinaryOp::Add, 0, 1), half),
                ]),
            }],
        });
        let inputs = [m * k, k * n, n].map(|n| Input::Plain(noise.elements(half, n as usize)));
        let mut words = vec![m, k, 0, k, 1, n, 0];
        words.extend(if unit == RightUnit::K { [1, k] } else { [n, 1] });
        words.extend([0, 0, 1]);
        same(&tiers, &format!("product {m} {unit:?}"), &kernel, &inputs, (m * n) as usize, &words);
    }
    let kernel = Kernel::Gather(GatherKernel { source: half, ids: DType::U8, output: half });
    let inputs = [Input::Plain(noise.elements(half, 50)), Input::Plain(vec![4, 0, 9])];
    same(&tiers, "gather", &kernel, &inputs, 15, &[1, 3, 10, 5, 0, 0, 5, 0, 1]);
    for queries in [1i64, 3] {
        let kernel = Kernel::Attention(AttentionKernel {
            dtype: half,
            kv_dtype: half,
            causal: true,
            window: false,
            softcap: false,
            mask: false,
            rows: RowClass::of(queries as usize),
        });
        let (keys, width) = (9i64, 8i64);
        let inputs = [queries, keys, keys].map(|t| Input::Plain(noise.elements(half, (t * width) as usize)));
        let mut words = vec![1, queries, keys, 1, 1, width, width, keys - queries, 0];
        words.extend([0, 0, width, 0].repeat(3));
        same(&tiers, "attention", &kernel, &inputs, (queries * width) as usize, &words);
    }
    let kernel = Kernel::Random(RandomKernel { distribution: Distribution::Uniform, dtype: half });
    same(&tiers, "random", &kernel, &[], 101, &[101, 1, 2, 3, 4]);
}
