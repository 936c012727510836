//! Convolutions: strides, paddings, dilations of both kinds, groups, layouts, dtypes, epilogues.

use super::harness::*;
use tallow_graph::{
    BinaryOp, DType, Inst, Kernel, UnaryOp,
    kernel::{ConvKernel, Layout},
};

/// Input size, taps, output size, stride, low, dilation, input dilation.
type Axis = [i64; 7];

/// An operand's words for axes that lie in memory in this order, outermost first, from `offset` on.
fn laid_out(sizes: &[i64], order: &[usize], offset: i64) -> Vec<i64> {
    let mut words = vec![0; sizes.len() + 1];
    let mut step = 1;
    for &axis in order.iter().rev() {
        words[1 + axis] = step;
        step *= sizes[axis];
    }
    words[0] = offset;
    words
}

fn count(sizes: &[i64]) -> usize {
    sizes.iter().product::<i64>() as usize
}

/// `lead` is [samples, groups, channels, outputs]. `turn`: operands in another order, the filter's last axis backwards.
fn conv(seed: u64, dtype: DType, lead: [i64; 4], axes: &[Axis], operand_of: Option<Layout>, turn: bool) {
    let mut noise = Noise(seed);
    let [samples, groups, channels, outputs] = lead;
    let of = |first: [i64; 3], which: usize| [&first[..], &axes.iter().map(|a| a[which]).collect::<Vec<_>>()].concat();
    let input = of([samples, groups, channels], 0);
    let filter = of([groups, outputs, channels], 1);
    let out = of([samples, groups, outputs], 2);
    let rank = input.len();
    let order: Vec<usize> = if turn { (0..rank).map(|a| (a + 2) % rank).collect() } else { (0..rank).collect() };
    let (x_words, mut f_words) = (laid_out(&input, &order, 3), laid_out(&filter, &order, 0));
    if turn {
        f_words[0] = f_words[rank] * (filter[rank - 1] - 1);
        f_words[rank] = -f_words[rank];
    }
    let mut words = lead.to_vec();
    axes.iter().for_each(|axis| words.extend(axis));
    words.extend(x_words);
    words.extend(f_words);
    let mut inputs = vec![
        Input::Plain(noise.elements(dtype, 3 + count(&input))),
        Input::Plain(noise.elements(dtype, count(&filter))),
    ];
    let mut code = vec![(Inst::Acc(0), DType::F32)];
    let mut operands = Vec::new();
    if let Some(layout) = operand_of {
        code.push((Inst::Load(0), DType::F32));
        code.push((Inst::Binary(BinaryOp::Add, 0, 1), DType::F32));
        code.push((Inst::Unary(UnaryOp::Relu, 2), DType::F32));
        operands.push(operand(2, dtype, layout));
        inputs.push(Input::Plain(noise.elements(dtype, 1 + count(&out))));
        let whole: Vec<usize> = (0..rank).collect();
        words.extend(match layout {
            Layout::Linear => laid_out(&out, &whole, 1),
            Layout::Scalar => [&[1][..], &vec![0; rank]].concat(),
            // One number an output channel and position of the last axis.
            Layout::Strided => {
                let mut words = vec![0; rank + 1];
                (words[2], words[3], words[rank]) = (outputs, 1, i64::from(rank > 3));
                words
            }
        });
    }
    if dtype != DType::F32 {
        code.push((Inst::Cast(code.len() as u16 - 1), dtype));
    }
    let kernel = ConvKernel {
        spatial: axes.len() as u8,
        input: (0, dtype),
        filter: (1, dtype),
        operands: operands.into(),
        epilogue: expr(&code),
    };
    let tolerance = match dtype {
        DType::F32 => scaled(1e-5),
        DType::F16 => scaled(4e-3),
        _ => scaled(3e-2),
    };
    let name = format!("conv {dtype} {lead:?} {axes:?} {operand_of:?} {turn}");
    check(&name, &Kernel::Conv(kernel), &inputs, &[(dtype, count(&out))], &words, &[], tolerance);
}

#[test]
fn random_geometries() {
    let mut noise = Noise(50);
    let layouts = [None, Some(Layout::Linear), Some(Layout::Scalar), Some(Layout::Strided)];
    for case in 0..32usize {
        let mut pick = |n: u64| (noise.bits() % n) as i64;
        let axes: Vec<Axis> = (0..1 + case % 3)
            .map(|_| [1 + pick(7), 1 + pick(4), 1 + pick(6), 1 + pick(3), pick(7) - 2, 1 + pick(3), 1 + pick(3)])
            .collect();
        let lead = [1 + pick(3), 1 + pick(3), 1 + pick(4), 1 + pick(6)];
        let dtype = [DType::F32, DType::F16, DType::F32, DType::BF16, DType::F32][case % 5];
        conv(case as u64, dtype, lead, &axes, layouts[case % 4], case % 8 > 3);
    }
}

#[test]
fn tiles_with_rests() {
    let same = |size: i64| -> Axis { [size, 3, size, 1, 1, 1, 1] };
    conv(1, DType::F32, [2, 1, 19, 70], &[same(9), same(11)], Some(Layout::Strided), false);
    conv(2, DType::F32, [3, 2, 33, 5], &[same(40)], None, true);
    conv(3, DType::F32, [1, 1, 3, 65], &[[17, 5, 7, 2, 1, 1, 1], [19, 5, 8, 2, 1, 1, 1]], None, false);
    conv(4, DType::F16, [1, 1, 40, 8], &[[8, 1, 8, 1, 0, 1, 1], [9, 1, 9, 1, 0, 1, 1]], Some(Layout::Linear), false);
    // The gradient of a filter: many taps.
    conv(5, DType::F32, [6, 1, 2, 5], &[[12, 10, 3, 1, 0, 1, 1], [13, 11, 3, 1, 0, 1, 1]], None, true);
}
