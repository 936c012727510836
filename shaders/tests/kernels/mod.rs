//! A wide set of kernels with words that fit them.

use smallvec::smallvec;
use std::sync::Arc;
use tallow_graph::{
    BinaryOp, CompareOp, DType, Expr, Inst, Kernel, UnaryOp,
    kernel::{
        Activations, AttentionKernel, ContractKernel, ContractPart, ConvKernel, Custom, CustomKernel, Distribution,
        GatherKernel, Layout, MapKernel, MapPart, Operand, PickKernel, Prologue, RandomKernel, RightUnit, RowClass,
        RowKernel, RowOp, ScanKernel, ScanOp, ScatterKernel, ScatterOp, SortKernel, Wgsl,
    },
};

pub type Case = (String, Kernel, Vec<i64>);

pub fn operand(input: u8, dtype: DType, layout: Layout) -> Operand {
    Operand { input: Some(input), dtype, layout }
}

pub fn expr(code: &[(Inst, DType)]) -> Expr {
    Expr { code: code.iter().map(|c| c.0).collect(), dtypes: code.iter().map(|c| c.1).collect() }
}

const COMPUTED: [DType; 13] = [
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::I32,
    DType::U64,
    DType::I64,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::BF16,
    DType::F16,
    DType::F32,
];

const UNARY: [UnaryOp; 21] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Sign,
    UnaryOp::Sqr,
    UnaryOp::Sqrt,
    UnaryOp::Rsqrt,
    UnaryOp::Recip,
    UnaryOp::Exp,
    UnaryOp::Log,
    UnaryOp::Sin,
    UnaryOp::Cos,
    UnaryOp::Tanh,
    UnaryOp::Erf,
    UnaryOp::Gelu,
    UnaryOp::GeluErf,
    UnaryOp::Relu,
    UnaryOp::Silu,
    UnaryOp::Sigmoid,
    UnaryOp::Floor,
    UnaryOp::Ceil,
    UnaryOp::Round,
];

const BINARY: [BinaryOp; 8] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Maximum,
    BinaryOp::Minimum,
    BinaryOp::Pow,
    BinaryOp::Rem,
];

/// Of integers only.
const BITS: [BinaryOp; 5] = [BinaryOp::BitAnd, BinaryOp::BitOr, BinaryOp::BitXor, BinaryOp::Shl, BinaryOp::Shr];

const COMPARE: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

/// A map of one part over rank `rank`, with words of sizes 8 and any strides.
fn map(name: String, rank: u8, vector: bool, operands: Vec<Operand>, e: Expr, output: Layout) -> Case {
    let r = usize::from(rank);
    let mut words = vec![8; r];
    words.extend(vec![0; (1 + r) * (1 + operands.len())]);
    let part = MapPart { rank, vector, operands: operands.into(), expr: e, output };
    (name, Kernel::Map(MapKernel { parts: smallvec![part] }), words)
}

fn maps() -> Vec<Case> {
    let mut all = Vec::new();
    let one = |dtype, layout| vec![operand(0, dtype, layout)];
    for dtype in COMPUTED {
        let n = dtype.name();
        // All unary operations of a dtype in one chain, so that each is compiled.
        let mut code = vec![(Inst::Load(0), dtype)];
        for (i, op) in UNARY.iter().enumerate() {
            code.push((Inst::Unary(*op, i as u16), dtype));
        }
        all.push(map(format!("unary_{n}"), 1, false, one(dtype, Layout::Linear), expr(&code), Layout::Linear));
        let mut code = vec![(Inst::Load(0), dtype), (Inst::Param(0), dtype)];
        let ops: Vec<BinaryOp> = BINARY.into_iter().chain(BITS.into_iter().filter(|_| dtype.is_int())).collect();
        for (i, op) in ops.iter().enumerate() {
            code.push((Inst::Binary(*op, i as u16 + 1, 0), dtype));
        }
        all.push(map(format!("binary_{n}"), 2, true, one(dtype, Layout::Strided), expr(&code), Layout::Linear));
        let mut code = vec![(Inst::Load(0), dtype), (Inst::Load(1), dtype)];
        for op in COMPARE {
            code.push((Inst::Compare(op, 0, 1), DType::U8));
        }
        for i in 3..8 {
            code.push((Inst::Binary(BinaryOp::Add, i - 1, code.len() as u16 - 1), DType::U8));
        }
        for vector in [false, true] {
            let operands = vec![operand(0, dtype, Layout::Linear), operand(1, dtype, Layout::Scalar)];
            all.push(map(format!("compare_{n}_{vector}"), 1, vector, operands, expr(&code), Layout::Linear));
        }
        for to in COMPUTED {
            let code = [(Inst::Load(0), dtype), (Inst::Cast(0), to)];
            let vector = to == DType::F32;
            all.push(map(format!("cast_{n}_{to}"), 1, vector, one(dtype, Layout::Linear), expr(&code), Layout::Linear));
        }
        for (vector, output) in
            [(false, Layout::Linear), (false, Layout::Strided), (true, Layout::Strided), (true, Layout::Linear)]
        {
            let code = [(Inst::Load(0), dtype)];
            let name = format!("copy_{n}_{vector}_{output:?}");
            all.push(map(name, 3, vector, one(dtype, Layout::Strided), expr(&code), output));
        }
        let code = [
            (Inst::Load(0), DType::U8),
            (Inst::Load(1), dtype),
            (Inst::Position(2), dtype),
            (Inst::Where(0, 1, 2), dtype),
        ];
        for vector in [false, true] {
            let operands = vec![
                operand(0, DType::U8, Layout::Strided),
                operand(1, dtype, Layout::Linear),
                Operand { input: None, dtype, layout: Layout::Strided },
            ];
            all.push(map(format!("where_{n}_{vector}"), 8, vector, operands, expr(&code), Layout::Linear));
        }
    }
    all.push(map(
        "scalar".into(),
        0,
        false,
        one(DType::F32, Layout::Scalar),
        expr(&[(Inst::Load(0), DType::F32)]),
        Layout::Linear,
    ));
    let part = |input: u8, dtype: DType, vector: bool| MapPart {
        rank: 1,
        vector,
        operands: smallvec![operand(input, dtype, Layout::Linear), operand(2, DType::F32, Layout::Scalar)],
        expr: expr(&[
            (Inst::Load(0), dtype),
            (Inst::Cast(0), DType::F32),
            (Inst::Load(1), DType::F32),
            (Inst::Param(3), DType::F32),
            (Inst::Binary(BinaryOp::Mul, 1, 2), DType::F32),
            (Inst::Binary(BinaryOp::Add, 4, 3), DType::F32),
        ]),
        output: Layout::Linear,
    };
    let parts = smallvec![part(0, DType::F16, true), part(1, DType::F32, false), part(1, DType::F32, true)];
    let words = [8, 0, 1, 0, 1, 0, 0].repeat(3);
    all.push(("parts".into(), Kernel::Map(MapKernel { parts }), words));
    all
}

fn rows() -> Vec<Case> {
    let mut all = Vec::new();
    let ops = [
        RowOp::Sum,
        RowOp::Prod,
        RowOp::Mean,
        RowOp::Max,
        RowOp::Min,
        RowOp::ArgMax,
        RowOp::ArgMin,
        RowOp::RmsNorm,
        RowOp::LayerNorm,
        RowOp::Softmax,
    ];
    for op in ops {
        let floats = !op.reduces() || op == RowOp::Mean;
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::U8, DType::I32, DType::U32, DType::I64, DType::U64] {
            if floats && !dtype.is_float() {
                continue;
            }
            for (outer, inner) in [(0u8, 1u8), (1, 1), (2, 1), (1, 2), (1, 0)] {
                if !op.reduces() && inner != 1 {
                    continue;
                }
                let arg = matches!(op, RowOp::ArgMax | RowOp::ArgMin);
                let accumulator = if arg { DType::U32 } else { dtype };
                let eps = u16::from(matches!(op, RowOp::RmsNorm | RowOp::LayerNorm));
                let after = if arg || !dtype.is_float() {
                    expr(&[(Inst::Acc(0), accumulator)])
                } else {
                    expr(&[
                        (Inst::Acc(0), dtype),
                        (Inst::Load(1), dtype),
                        (Inst::Binary(BinaryOp::Mul, 0, 1), dtype),
                        (Inst::Param(eps), dtype),
                        (Inst::Binary(BinaryOp::Add, 2, 3), dtype),
                    ])
                };
                let kernel = RowKernel {
                    op,
                    outer,
                    inner,
                    operands: smallvec![operand(0, dtype, Layout::Strided), operand(1, dtype, Layout::Strided)],
                    before: expr(&[(Inst::Load(0), dtype), (Inst::Unary(UnaryOp::Sqr, 0), dtype)]),
                    after,
                    accumulator,
                };
                let rank = usize::from(outer + inner);
                let mut words = vec![4; rank];
                words.extend(vec![0; 2 * (1 + rank)]);
                if rank == 0 {
                    continue;
                }
                all.push((format!("row_{op:?}_{dtype}_{outer}_{inner}"), Kernel::Row(kernel), words));
            }
        }
    }
    all
}

pub fn contract_words(batch: usize, m: i64, k: i64, n: i64, parts: usize, prologue: bool, operands: usize) -> Vec<i64> {
    let mut words = vec![2; batch];
    words.extend([m, k, 0]);
    words.extend(vec![m * k; batch]);
    words.extend([k, 1]);
    if prologue {
        words.extend([0, 0]);
    }
    for _ in 0..parts {
        words.extend([n, 0]);
        words.extend(vec![0; batch]);
        words.extend([1, k]);
        for _ in 0..operands {
            words.push(0);
            words.extend(vec![m * n; batch]);
            words.extend([n, 1]);
        }
    }
    words
}

fn contracts() -> Vec<Case> {
    let mut all = Vec::new();
    let mut rights: Vec<(DType, RightUnit)> = DType::QUANTIZED.map(|d| (d, RightUnit::K)).to_vec();
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3] {
        rights.extend([(dtype, RightUnit::K), (dtype, RightUnit::N)]);
    }
    for rows in [RowClass::One, RowClass::Few, RowClass::Many] {
        for &(dtype, right_unit) in &rights {
            let quantized = dtype.is_quantized();
            for (vector, paired, batch, q8, prologue, parts) in [
                (true, false, 0u8, false, None, 1usize),
                (false, false, 2, false, None, 1),
                (true, true, 1, false, None, 1),
                (true, false, 0, true, None, 1),
                (true, true, 0, true, Some(RowOp::RmsNorm), 1),
                (false, false, 1, false, Some(RowOp::LayerNorm), 2),
                (true, false, 0, false, None, 3),
            ] {
                if (q8 && !quantized) || (prologue.is_some() && rows == RowClass::Many) {
                    continue;
                }
                // Both kinds of left operand that cooperative matrices tell apart.
                let narrow = right_unit == RightUnit::N || (rows == RowClass::Many && paired != vector);
                let left = if narrow { DType::F16 } else { DType::F32 };
                let output = if vector { DType::F32 } else { DType::F16 };
                let mut code = vec![(Inst::Acc(0), DType::F32)];
                if paired {
                    code.push((Inst::Unary(UnaryOp::Silu, 0), DType::F32));
                    code.push((Inst::Acc(1), DType::F32));
                    code.push((Inst::Binary(BinaryOp::Mul, 1, 2), DType::F32));
                }
                let result = code.len() as u16 - 1;
                code.push((Inst::Load(0), DType::F32));
                code.push((Inst::Binary(BinaryOp::Add, result, result + 1), output));
                let extra = 1 + parts as u8;
                let kernel = ContractKernel {
                    batch,
                    left: (0, left),
                    left_rows: batch != 2,
                    rows,
                    vector,
                    prologue: prologue.map(|op| Prologue {
                        op,
                        weight: Some((extra + 1, DType::F32)),
                        bias: (op == RowOp::LayerNorm).then_some((extra + 2, DType::F16)),
                    }),
                    activations: if q8 { Activations::Q8 } else { Activations::F32 },
                    parts: (0..parts)
                        .map(|p| ContractPart {
                            right: (1 + p as u8, dtype),
                            right_unit,
                            paired,
                            operands: smallvec![operand(extra, DType::F32, Layout::Linear)],
                            epilogue: expr(&code),
                        })
                        .collect(),
                };
                let m = match rows {
                    RowClass::One => 1,
                    RowClass::Few => 5,
                    RowClass::Many => 70,
                };
                let words = contract_words(usize::from(batch), m, 512, 10, parts, prologue.is_some(), 1);
                let name =
                    format!("matmul_{rows:?}_{dtype}_{right_unit:?}_{vector}_{paired}_{q8}_{}", prologue.is_some());
                all.push((name, Kernel::Contract(kernel), words));
            }
        }
    }
    all
}

fn convs() -> Vec<Case> {
    let mut all = Vec::new();
    for spatial in 1..=3u8 {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3] {
            for layout in [None, Some(Layout::Linear), Some(Layout::Scalar), Some(Layout::Strided)] {
                // relu(sum + operand), stored in the input's dtype.
                let mut code = vec![(Inst::Acc(0), DType::F32)];
                if layout.is_some() {
                    code.push((Inst::Load(0), DType::F32));
                    code.push((Inst::Binary(BinaryOp::Add, 0, 1), DType::F32));
                    code.push((Inst::Unary(UnaryOp::Relu, 2), DType::F32));
                }
                code.push((Inst::Cast(code.len() as u16 - 1), dtype));
                let kernel = ConvKernel {
                    spatial,
                    input: (0, dtype),
                    filter: (1, dtype),
                    operands: layout.map(|layout| operand(2, dtype, layout)).into_iter().collect(),
                    epilogue: expr(&code),
                };
                let mut words = vec![2, 1, 8, 32];
                words.extend([9, 3, 9, 1, 1, 1, 1].repeat(usize::from(spatial)));
                words.extend(vec![0; (4 + usize::from(spatial)) * (2 + kernel.operands.len())]);
                all.push((format!("conv{spatial}d_{dtype}_{layout:?}"), Kernel::Conv(kernel), words));
            }
        }
    }
    all
}

fn others() -> Vec<Case> {
    let mut all = Vec::new();
    for rows in [RowClass::One, RowClass::Few, RowClass::Many] {
        let dtypes = [DType::F32, DType::F16, DType::BF16];
        for (dtype, kv_dtype) in dtypes.map(|d| (d, d)).into_iter().chain([(DType::F32, DType::F16)]) {
            for bits in 0..16 {
                let on = |bit: u32| bits >> bit & 1 == 1;
                let kernel = AttentionKernel {
                    dtype,
                    kv_dtype,
                    causal: on(0),
                    window: on(1),
                    softcap: on(2),
                    mask: on(3),
                    rows,
                };
                let mut words = vec![1, 4, 9, 6, 3, 64, 64, 5, 0];
                words.extend(vec![0; if on(3) { 17 } else { 12 }]);
                all.push((format!("attention_{rows:?}_{dtype}_{kv_dtype}_{bits}"), Kernel::Attention(kernel), words));
            }
        }
    }
    for source in COMPUTED.into_iter().chain(DType::QUANTIZED) {
        for ids in [DType::U32, DType::I64, DType::U8, DType::I32] {
            let output = if source.is_quantized() { DType::F32 } else { source };
            let words = vec![1, 3, 10, 512, 0, 0, 512, 0, 1];
            all.push((format!("gather_{source}_{ids}"), Kernel::Gather(GatherKernel { source, ids, output }), words));
        }
    }
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for distribution in [Distribution::Uniform, Distribution::Normal] {
            let kernel = Kernel::Random(RandomKernel { distribution, dtype });
            all.push((format!("random_{distribution:?}_{dtype}"), kernel, vec![100, 1, 2, 3, 4]));
        }
    }
    all
}

const WIDE: [DType; 5] = [DType::F32, DType::I32, DType::U32, DType::I64, DType::U64];

/// Kernels of three axes [outer, along, inner].
fn axes() -> Vec<Case> {
    let mut all = Vec::new();
    let operand = [1i64, 30, 3, 1];
    for ids in [DType::U8, DType::I16, DType::I32, DType::U32, DType::I64, DType::U64] {
        let words: Vec<i64> = [2, 10, 3, 20].into_iter().chain(operand).chain(operand).collect();
        for dtype in COMPUTED {
            let kernel = Kernel::Pick(PickKernel { dtype, ids });
            all.push((format!("pick_{dtype}_{ids}"), kernel, words.clone()));
        }
        for dtype in WIDE {
            for op in [ScatterOp::Set, ScatterOp::Add, ScatterOp::Max, ScatterOp::Min] {
                let kernel = Kernel::Scatter(ScatterKernel { op, dtype, ids });
                all.push((format!("scatter_{op:?}_{dtype}_{ids}"), kernel, words.clone()));
            }
        }
    }
    let words: Vec<i64> = [2, 10, 3].into_iter().chain(operand).collect();
    for dtype in WIDE {
        for descending in [false, true] {
            let kernel = Kernel::Sort(SortKernel { dtype, descending });
            all.push((format!("sort_{dtype}_{descending}"), kernel, words.clone()));
        }
        for op in [ScanOp::Sum, ScanOp::Prod, ScanOp::Max, ScanOp::Min] {
            all.push((format!("scan_{op:?}_{dtype}"), Kernel::Scan(ScanKernel { op, dtype }), words.clone()));
        }
    }
    all
}

/// Users' kernels: of every dtype that they may have, and with all that stands before a source in use.
fn customs() -> Vec<Case> {
    let custom = |name: &str, wgsl, inputs: &[DType], output, words: Vec<i64>| {
        let custom = Arc::new(Custom::new(name).with_wgsl(wgsl));
        let inputs = inputs.iter().map(|&dtype| (dtype, 2)).collect();
        let kernel = CustomKernel { custom, inputs, output: (output, 2), scalars: 5 };
        (format!("custom_{name}"), Kernel::Custom(kernel), words)
    };
    let elements = "fn element(i: u32) {\n    let row = i / out_dim(1u);\n    out[i] = f32(in0[i % in0_len()]) * param(0u) + \
                    f32(in1[row]) + f32(in1_dim(0u)) + param(1u) + f32(in2[0]);\n}\n";
    let kernel = "var<workgroup> shared_: array<i32, 64>;\n@compute @workgroup_size(64)\nfn main(@builtin(workgroup_id) \
                  wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {\n    let i = wid.x * 64u + lid;\n    \
                  shared_[lid] = select(0, in0[min(i, in0_len() - 1u)], i < in0_len());\n    workgroupBarrier();\n    if (i < \
                  out_len()) {\n        out[i] = shared_[63u - lid];\n    }\n}\n";
    vec![
        custom(
            "elements",
            Wgsl::Elements(elements.into()),
            &[DType::F32, DType::I32, DType::U32],
            DType::F32,
            vec![2, 3, 2, 1, 1, 1, 2, 3],
        ),
        custom(
            "kernel",
            Wgsl::Kernel(kernel.into(), Box::new(|_, out| [out.iter().product::<usize>().div_ceil(64) as u32, 1, 1])),
            &[DType::I32],
            DType::I32,
            vec![2, 3, 2, 3],
        ),
        // What tallow itself writes as a user would: the choice of a token.
        custom(
            "sample",
            Wgsl::Kernel(
                include_str!("../../../runtime/tallow/src/generation/sample.wgsl").into(),
                Box::new(|_, _| [1, 1, 1]),
            ),
            &[DType::F32],
            DType::U32,
            vec![1, 300, 1, 2],
        ),
    ]
}

/// All of them.
pub fn all() -> Vec<Case> {
    [maps(), rows(), contracts(), convs(), others(), axes(), customs()].concat()
}
