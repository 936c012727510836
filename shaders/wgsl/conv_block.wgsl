// A convolution in registers, for software devices: an invocation computes 4 neighbouring columns of ${CT} neighbouring output
// channels, so that each number it reads serves several products. Such devices divide slowly, compute both sides of an `if`,
// and move nothing out of loops: taps are walked axis by axis, with what an axis gives before the loop of the next. Functions
// as in conv.wgsl.

// Where places of the dilated input fall in the input; -1 between its elements. The loop runs once or not at all.
fn undilated(x: vec4<i32>, by: i32) -> vec4<i32> {
    var q = x;
    for (var once = 0; once < min(by - 1, 1); once++) {
        q = select(vec4<i32>(-1), x / by, x % by == vec4<i32>(0));
    }
    return q;
}
fn conv_block(t: u32) {
    let outputs = ${OUTPUTS};
    let columns = ${COLUMNS};
    let channels = ${CHANNELS};
    let x_channel = ${X_CHANNEL};
    let f_channel = ${F_CHANNEL};
    let tiles_o = (outputs + ${CT}u - 1u) / ${CT}u;
    let tiles_q = (columns + 3u) / 4u;
    let col = (t % tiles_q) * 4u;
    let row = ((t / tiles_q) % tiles_o) * ${CT}u;
    let g = t / (tiles_q * tiles_o);
//#for j 4
    let q_${j} = min(col + ${j}u, columns - 1u);
    let p_${j} = position(q_${j} % ${POSITIONS});
    let x_${j} = input_base(q_${j} / ${POSITIONS}, g);
//#end
    let base = vec4<u32>(x_0, x_1, x_2, x_3);
//#for i CT
    let f_${i} = filter_base(g, min(row + ${i}u, outputs - 1u));
    var acc_${i} = vec4<f32>(0.0);
//#end
    let taps_0 = ${TAPS_0};
    let size_0 = vec4<i32>(${SIZE_0});
    let step_0 = ${DILATION_0};
    let by_0 = ${INPUT_DILATION_0};
    let from_0 = vec4<i32>(p_0.x, p_1.x, p_2.x, p_3.x);
    let x_stride_0 = ${X_STRIDE_0};
    let f_stride_0 = ${F_STRIDE_0};
//#if AXIS_1
    let taps_1 = ${TAPS_1};
    let size_1 = vec4<i32>(${SIZE_1});
    let step_1 = ${DILATION_1};
    let by_1 = ${INPUT_DILATION_1};
    let from_1 = vec4<i32>(p_0.y, p_1.y, p_2.y, p_3.y);
    let x_stride_1 = ${X_STRIDE_1};
    let f_stride_1 = ${F_STRIDE_1};
//#endif
//#if AXIS_2
    let taps_2 = ${TAPS_2};
    let size_2 = vec4<i32>(${SIZE_2});
    let step_2 = ${DILATION_2};
    let by_2 = ${INPUT_DILATION_2};
    let from_2 = vec4<i32>(p_0.z, p_1.z, p_2.z, p_3.z);
    let x_stride_2 = ${X_STRIDE_2};
    let f_stride_2 = ${F_STRIDE_2};
//#endif
    for (var t_0 = 0u; t_0 < taps_0; t_0++) {
    let y_0 = undilated(from_0 + i32(t_0) * step_0, by_0);
    let inside_0 = (y_0 >= vec4<i32>(0)) & (y_0 < size_0);
    let x_at_0 = base + bitcast<vec4<u32>>(y_0) * x_stride_0;
    let f_at_0 = t_0 * f_stride_0;
//#if AXIS_1
    for (var t_1 = 0u; t_1 < taps_1; t_1++) {
    let y_1 = undilated(from_1 + i32(t_1) * step_1, by_1);
    let inside_1 = inside_0 & (y_1 >= vec4<i32>(0)) & (y_1 < size_1);
    let x_at_1 = x_at_0 + bitcast<vec4<u32>>(y_1) * x_stride_1;
    let f_at_1 = f_at_0 + t_1 * f_stride_1;
//#endif
//#if AXIS_2
    for (var t_2 = 0u; t_2 < taps_2; t_2++) {
    let y_2 = undilated(from_2 + i32(t_2) * step_2, by_2);
    let inside_2 = inside_1 & (y_2 >= vec4<i32>(0)) & (y_2 < size_2);
    let x_at_2 = x_at_1 + bitcast<vec4<u32>>(y_2) * x_stride_2;
    let f_at_2 = f_at_1 + t_2 * f_stride_2;
//#endif
        // In the padding a sample's first element is read, and counts as nothing.
        let inside = inside_${LAST_AXIS};
        var x_at = select(base, x_at_${LAST_AXIS}, inside);
        var f_at = f_at_${LAST_AXIS};
        for (var channel = 0u; channel < channels; channel++) {
            let read = vec4<f32>(${LOAD_X}(x_at.x), ${LOAD_X}(x_at.y), ${LOAD_X}(x_at.z), ${LOAD_X}(x_at.w));
            let x = select(vec4<f32>(0.0), read, inside);
//#for i CT
            acc_${i} += ${LOAD_F}(f_${i} + f_at) * x;
//#end
            x_at += vec4<u32>(x_channel);
            f_at += f_channel;
        }
//#if AXIS_2
    }
//#endif
//#if AXIS_1
    }
//#endif
    }
//#for i CT
//#for j 4
    if (row + ${i}u < outputs && col + ${j}u < columns) {
        finish(g, row + ${i}u, col + ${j}u, acc_${i}[${j}]);
    }
//#end
//#end
}
