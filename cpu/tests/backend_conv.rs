//! Convolutions against the reference: random geometries with strides, paddings, dilations of both kinds, groups, layouts,
//! dtypes and epilogues, and shapes that reach each way of computing.

mod backend_common;

use backend_common::*;
use smallvec::smallvec;
use tallow_cpu::CpuBackend;
use tallow_graph::kernel::{ConvKernel, Layout};
use tallow_graph::{BinaryOp, DType, Inst, Kernel, UnaryOp};

/// Input size, taps, output size, stride, low, dilation, input dilation.
type Axis = [i64; 7];

/// Words of an operand whose axes lie in memory in this order, outermost first.
fn laid_out(sizes: &[i64], order: &[usize]) -> Vec<i64> {
    let mut words = vec![0; sizes.len() + 1];
    let mut step = 1;
    for &axis in order.iter().rev() {
        words[1 + axis] = step;
        step *= sizes[axis];
    }
    words
}

fn product(sizes: &[i64]) -> usize {
    sizes.iter().product::<i64>() as usize
}

/// A convolution of `lead` = [samples, groups, channels, outputs]; `turn` lays the operands out in another order, with the
/// filter's last axis backwards.
fn check_conv(seed: u64, dtype: DType, lead: [i64; 4], axes: &[Axis], bias: bool, turn: bool) {
    let mut noise = Noise(seed);
    let [samples, groups, channels, outputs] = lead;
    let of = |first: [i64; 3], which: usize| [&first[..], &axes.iter().map(|a| a[which]).collect::<Vec<_>>()].concat();
    let input = of([samples, groups, channels], 0);
    let filter = of([groups, outputs, channels], 1);
    let out = of([samples, groups, outputs], 2);
    let rank = input.len();
    let order: Vec<usize> = if turn { (0..rank).map(|a| (a + 2) % rank).collect() } else { (0..rank).collect() };
    let (x_words, mut w_words) = (laid_out(&input, &order), laid_out(&filter, &order));
    if turn {
        w_words[0] = w_words[rank] * (filter[rank - 1] - 1);
        w_words[rank] = -w_words[rank];
    }
    let mut words = lead.to_vec();
    axes.iter().for_each(|axis| words.extend(axis));
    words.extend(x_words);
    words.extend(w_words);
    let mut inputs = vec![noise_of(&mut noise, dtype, product(&input)), noise_of(&mut noise, dtype, product(&filter))];
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let mut kernel = ConvKernel {
        spatial: axes.len() as u8,
        input: (0, dtype),
        filter: (1, dtype),
        operands: smallvec![],
        epilogue: acc(wide),
    };
    if bias {
        // relu(sums + bias)
        inputs.push(noise_of(&mut noise, dtype, (groups * outputs) as usize));
        words.extend([&[0, 0, outputs, 1][..], &vec![0; axes.len()]].concat());
        kernel.operands.push(operand(2, dtype, Layout::Strided));
        kernel.epilogue = expr(&[
            (Inst::Acc(0), wide),
            (Inst::Load(0), wide),
            (Inst::Binary(BinaryOp::Add, 0, 1), wide),
            (Inst::Unary(UnaryOp::Relu, 2), wide),
        ]);
    }
    if dtype != wide {
        let last = kernel.epilogue.code.len() as u16 - 1;
        kernel.epilogue.code.push(Inst::Cast(last));
        kernel.epilogue.dtypes.push(dtype);
    }
    let tolerance = match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        _ => 2e-2,
    };
    let depth = (channels * axes.iter().map(|a| a[1]).product::<i64>()).max(1) as f64;
    let backend = CpuBackend::with_threads(1 + seed as usize % 3).unwrap();
    let what = format!("{dtype} {lead:?} {axes:?} bias {bias} turn {turn}");
    check(
        &backend,
        &what,
        &Kernel::Conv(kernel),
        &inputs,
        &[(dtype, product(&out))],
        &words,
        &[],
        tolerance * depth.sqrt(),
    );
}

#[test]
fn random_geometries() {
    let mut noise = Noise(5);
    for case in 0..240 {
        let axes: Vec<Axis> = (0..1 + case % 3)
            .map(|_| {
                let mut pick = |n: usize| noise.below(n) as i64;
                [1 + pick(7), 1 + pick(4), 1 + pick(7), 1 + pick(3), pick(7) - 2, 1 + pick(3), 1 + pick(3)]
            })
            .collect();
        let lead = [
            1 + noise.below(3) as i64,
            1 + noise.below(3) as i64,
            1 + noise.below(3) as i64,
            1 + noise.below(5) as i64,
        ];
        let dtype = [DType::F32, DType::F64, DType::F16, DType::F32, DType::BF16][case as usize % 5];
        check_conv(case as u64, dtype, lead, &axes, case % 2 == 1, case % 4 > 1);
    }
}

#[test]
fn shapes_of_each_way() {
    let same = |size: i64| axis(size, 3, 1, 1, 1);
    for (seed, bias) in [(0, false), (1, true)] {
        let f = DType::F32;
        // Several tiles along the positions, a depth in several blocks.
        check_conv(seed, f, [2, 1, 20, 24], &[same(23), same(31)], bias, false);
        check_conv(seed, f, [1, 1, 700, 12], &[same(5), same(17)], bias, false);
        // In place: one tap.
        check_conv(seed, f, [2, 1, 33, 40], &[axis(9, 1, 1, 0, 1), axis(21, 1, 1, 0, 1)], bias, false);
        check_conv(seed, f, [1, 2, 33, 10], &[axis(9, 1, 2, 0, 1), axis(21, 1, 2, 0, 1)], bias, true);
        // No padding: patches straight from the input.
        check_conv(seed, f, [1, 1, 8, 16], &[axis(300, 3, 1, 0, 1)], bias, false);
        // Depthwise, with rests of rows, a stride, a dilation, several outputs.
        check_conv(seed, f, [2, 9, 1, 1], &[same(11), same(83)], bias, false);
        check_conv(seed, f, [1, 5, 1, 3], &[axis(20, 5, 2, 2, 1), axis(90, 3, 2, 1, 2)], bias, true);
        check_conv(
            seed,
            f,
            [1, 5, 1, 2],
            &[axis(6, 3, 1, 1, 1), axis(7, 3, 1, 0, 1), axis(19, 3, 3, 1, 1)],
            bias,
            false,
        );
        // The gradient of a filter: many taps, few positions.
        check_conv(seed, f, [8, 1, 3, 12], &[[20, 18, 3, 1, 0, 1, 1], [30, 28, 3, 1, 0, 1, 1]], bias, true);
        check_conv(seed, f, [5, 2, 2, 3], &[[21, 10, 3, 1, 1, 2, 1], [31, 15, 3, 1, 1, 2, 1]], bias, false);
        // Transposed, with a stride.
        check_conv(seed, f, [2, 1, 9, 7], &[[13, 4, 26, 1, 2, 1, 2], [40, 4, 80, 1, 2, 1, 2]], bias, true);
        check_conv(seed, DType::F16, [1, 3, 1, 1], &[same(11), same(40)], bias, false);
        // No channels: nothing to add.
        check_conv(seed, f, [1, 1, 0, 3], &[same(4)], bias, false);
        check_conv(seed, f, [0, 1, 2, 3], &[same(4)], bias, false);
    }
}

/// Size, taps, stride, padding, dilation.
fn axis(size: i64, taps: i64, stride: i64, padding: i64, dilation: i64) -> Axis {
    [size, taps, (size + 2 * padding - dilation * (taps - 1) - 1) / stride + 1, stride, padding, dilation, 1]
}

/// Geometries that reach each way of packing and of storing, with rests of every panel.
fn check_ways(seed: u64, dtype: DType) {
    for (seed, bias, turn) in [(seed, false, false), (seed + 1, true, true)] {
        // Same sizes: several samples in a strip, rows shorter and longer than a panel.
        check_conv(seed, dtype, [3, 1, 5, 37], &[axis(7, 3, 1, 1, 1), axis(7, 3, 1, 1, 1)], bias, turn);
        check_conv(seed, dtype, [2, 1, 3, 20], &[axis(5, 5, 1, 2, 1), axis(43, 5, 1, 2, 1)], bias, turn);
        check_conv(seed, dtype, [2, 2, 3, 9], &[axis(9, 3, 1, 2, 2), axis(11, 3, 1, 2, 2)], bias, turn);
        check_conv(
            seed,
            dtype,
            [1, 1, 4, 7],
            &[axis(3, 3, 1, 1, 1), axis(4, 3, 1, 1, 1), axis(6, 3, 1, 1, 1)],
            bias,
            turn,
        );
        // Few positions, many output channels: the product turned.
        check_conv(seed, dtype, [1, 1, 6, 64], &[axis(7, 3, 1, 1, 1), axis(7, 3, 1, 1, 1)], bias, turn);
        check_conv(seed, dtype, [1, 1, 70, 96], &[axis(7, 1, 1, 0, 1), axis(7, 1, 1, 0, 1)], bias, turn);
        check_conv(seed, dtype, [1, 1, 40, 33], &[axis(17, 3, 1, 1, 1)], bias, turn);
        // Padding larger than the filter, a stride larger than it, a dilation, one tap with a stride.
        check_conv(seed, dtype, [2, 1, 3, 5], &[axis(4, 3, 2, 5, 1), axis(6, 2, 1, 4, 1)], bias, turn);
        check_conv(seed, dtype, [1, 1, 3, 18], &[axis(23, 2, 4, 1, 1), axis(37, 3, 5, 0, 1)], bias, turn);
        check_conv(seed, dtype, [2, 1, 17, 19], &[axis(13, 1, 2, 0, 1), axis(13, 1, 2, 0, 1)], bias, turn);
        check_conv(seed, dtype, [1, 1, 3, 40], &[axis(30, 7, 2, 3, 1), axis(41, 7, 2, 3, 1)], bias, turn);
        // Many groups.
        check_conv(seed, dtype, [2, 12, 4, 4], &[axis(6, 3, 1, 1, 1), axis(10, 3, 1, 1, 1)], bias, turn);
        // The depth in several blocks, with channels cut by them.
        check_conv(seed, dtype, [1, 1, 61, 15], &[axis(6, 3, 1, 1, 1), axis(9, 3, 1, 1, 1)], bias, turn);
        // Gradients of a filter, and of an input with a stride.
        check_conv(seed, dtype, [5, 1, 7, 18], &[[9, 9, 3, 1, 1, 1, 1], [21, 21, 3, 1, 1, 1, 1]], bias, turn);
        check_conv(seed, dtype, [3, 1, 2, 5], &[[6, 6, 1, 1, 0, 1, 1], [9, 9, 1, 1, 0, 1, 1]], bias, turn);
        check_conv(seed, dtype, [2, 1, 9, 21], &[[5, 3, 10, 1, 1, 1, 2], [9, 3, 18, 1, 1, 1, 2]], bias, turn);
        // Depthwise: both strides, five taps, short and long rows, several outputs.
        check_conv(seed, dtype, [2, 7, 1, 1], &[axis(7, 5, 1, 2, 1), axis(7, 5, 1, 2, 1)], bias, turn);
        check_conv(seed, dtype, [1, 5, 1, 1], &[axis(30, 3, 2, 1, 1), axis(75, 3, 2, 1, 1)], bias, turn);
        check_conv(seed, dtype, [1, 3, 1, 2], &[axis(14, 3, 3, 1, 2), axis(40, 4, 3, 1, 1)], bias, turn);
    }
}

/// Large ones, whose patches are read as they lie: lines of several parts, rests of panels, planes with and without lanes.
fn check_large(seed: u64, dtype: DType) {
    let shapes: [([i64; 4], &[Axis]); 6] = [
        ([2, 1, 24, 56], &[axis(14, 3, 1, 1, 1), axis(14, 3, 1, 1, 1)]),
        ([1, 1, 50, 40], &[axis(29, 3, 2, 1, 1), axis(31, 3, 2, 1, 1)]),
        ([1, 2, 25, 32], &[axis(19, 3, 1, 0, 1), axis(31, 3, 1, 4, 2)]),
        ([1, 1, 6, 33], &[axis(5, 3, 1, 1, 1), axis(9, 3, 1, 2, 1), axis(17, 3, 1, 0, 1)]),
        ([1, 1, 50, 72], &[axis(400, 3, 1, 1, 1)]),
        ([1, 1, 35, 64], &[[8, 3, 8, 1, 1, 1, 1], [40, 4, 80, 1, 2, 1, 2]]),
    ];
    for (i, (lead, axes)) in shapes.into_iter().enumerate() {
        let other = (seed + i as u64) % 2 == 1;
        check_conv(seed, dtype, lead, axes, other, other);
    }
}

/// Held while the process's instruction set matters.
static ISA: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn every_instruction_set_and_dtype() {
    let _held = ISA.lock();
    for (i, isa) in tallow_cpu::Isa::supported().into_iter().enumerate() {
        // For the whole process: the other tests hold with any.
        tallow_cpu::Isa::set_current(Some(isa));
        check_ways(10 * i as u64, DType::F32);
        check_large(i as u64, DType::F32);
        if i % 2 == 0 {
            check_ways(10 * i as u64 + 3, DType::F64);
            check_large(i as u64 + 1, DType::F64);
        }
    }
    tallow_cpu::Isa::set_current(None);
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let _held = ISA.lock();
    let mut noise = Noise(77);
    let axes = [axis(14, 3, 1, 1, 1), axis(14, 3, 1, 1, 1)];
    for lead in [[2, 1, 40, 50], [1, 1, 40, 64], [2, 1, 60, 64], [3, 8, 1, 1], [2, 4, 6, 6]] {
        let [samples, groups, channels, outputs] = lead;
        let (input, filter) = ([samples, groups, channels, 14, 14], [groups, outputs, channels, 3, 3]);
        let inputs: Vec<Vec<u8>> =
            [input, filter].iter().map(|sizes| noise_of(&mut noise, DType::F32, product(sizes))).collect();
        let mut words = lead.to_vec();
        axes.iter().for_each(|axis| words.extend(axis));
        words.extend(laid_out(&input, &[0, 1, 2, 3, 4]));
        words.extend(laid_out(&filter, &[0, 1, 2, 3, 4]));
        let kernel = Kernel::Conv(ConvKernel {
            spatial: 2,
            input: (0, DType::F32),
            filter: (1, DType::F32),
            operands: smallvec![],
            epilogue: acc(DType::F32),
        });
        let size = product(&[samples, groups, outputs, 14, 14]) * 4;
        let of = |threads| {
            let backend = CpuBackend::with_threads(threads).unwrap();
            try_run(&backend, kernel.clone(), &inputs, &[size], &words, &[]).unwrap()
        };
        let one = of(1);
        for threads in [2, 3, 5] {
            assert!(one == of(threads), "{lead:?} on {threads} threads");
        }
    }
}

#[test]
fn words_that_lead_outside_are_refused() {
    let kernel = Kernel::Conv(ConvKernel {
        spatial: 1,
        input: (0, DType::F32),
        filter: (1, DType::F32),
        operands: smallvec![],
        epilogue: acc(DType::F32),
    });
    let backend = CpuBackend::with_threads(1).unwrap();
    let good = [1, 1, 1, 1, 4, 2, 3, 1, 0, 1, 1, 0, 4, 4, 4, 1, 0, 2, 2, 2, 1];
    let inputs = [vec![0; 16], vec![0; 8]];
    assert!(try_run(&backend, kernel.clone(), &inputs, &[12], &good, &[]).is_ok());
    for (at, value) in [(0, 2), (4, 5), (5, 3), (6, 4), (7, 0), (9, -1), (10, 0), (11, 1), (15, 2), (16, -1)] {
        let mut words = good;
        words[at] = value;
        assert!(try_run(&backend, kernel.clone(), &inputs, &[12], &words, &[]).is_err(), "word {at} = {value}");
    }
    assert!(try_run(&backend, kernel, &inputs, &[12], &good[..20], &[]).is_err());
}
