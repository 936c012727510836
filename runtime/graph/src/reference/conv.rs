//! Convolution, one loop straight from the documentation of [`ConvKernel`].

use super::{
    run::{At, Env, Words, element, indices, put},
    value::V,
};
use crate::{DType, Scalar, kernel::ConvKernel};

pub(super) fn step(k: &ConvKernel, mut words: Words<'_>, scalars: &[Scalar], inputs: &[Vec<u8>], out: &mut [u8]) {
    let spatial = k.spatial as usize;
    let [samples, groups, channels, outputs] = [(); 4].map(|()| words.one());
    let axes: Vec<&[i64]> = (0..spatial).map(|_| words.many(7)).collect();
    let input = At(words.one(), words.many(3 + spatial));
    let filter = At(words.one(), words.many(3 + spatial));
    let walks: Vec<At> = k.operands.iter().map(|_| At(words.one(), words.many(3 + spatial))).collect();
    let env = Env { inputs, operands: &k.operands, walks: &walks, scalars };
    let dtype = k.epilogue.dtype().unwrap_or(DType::F32);
    let sizes = |at: usize| -> Vec<i64> { axes.iter().map(|axis| axis[at]).collect() };
    let taps = indices(&[[channels].as_slice(), &sizes(1)].concat());
    let space = [[samples, groups, outputs].as_slice(), &sizes(2)].concat();
    for (at, index) in indices(&space).into_iter().enumerate() {
        let (b, g, i, position) = (index[0], index[1], index[2], &index[3..]);
        let mut acc = 0.0;
        for tap in &taps {
            // Where the tap reads on each axis; `None` outside the input and between its elements.
            let place: Option<Vec<i64>> = axes
                .iter()
                .zip(position.iter().zip(&tap[1..]))
                .map(|(axis, (p, t))| {
                    let &[size, _, _, stride, low, dilation, input_dilation] = *axis else { return None };
                    let x = p * stride + t * dilation - low;
                    (x >= 0 && x % input_dilation == 0 && x / input_dilation < size).then(|| x / input_dilation)
                })
                .collect();
            if let Some(place) = place {
                let x = input.index(&[[b, g, tap[0]].as_slice(), &place].concat());
                let w = filter.index(&[[g, i].as_slice(), tap].concat());
                acc += element(&inputs[k.input.0 as usize], k.input.1, x).f()
                    * element(&inputs[k.filter.0 as usize], k.filter.1, w).f();
            }
        }
        put(out, dtype, at, env.run(&k.epilogue, &[V::F(acc)], &index));
    }
}
