// A convolution without barriers: an invocation computes one column (a position of a sample) of ${CT} neighbouring output
// channels. For filters of few channels, and for devices where barriers are dear. Functions as in conv.wgsl.
fn conv_serial(t: u32) {
    let outputs = ${OUTPUTS};
    let columns = ${COLUMNS};
    let channels = ${CHANNELS};
    let tiles_o = (outputs + ${CT}u - 1u) / ${CT}u;
    let q = t % columns;
    let row = ((t / columns) % tiles_o) * ${CT}u;
    let g = t / (columns * tiles_o);
    let p = position(q % ${POSITIONS});
    let x = input_base(q / ${POSITIONS}, g);
//#for i CT
    let f_${i} = filter_base(g, min(row + ${i}u, outputs - 1u));
    var acc_${i} = 0.0;
//#end
    for (var tap = 0u; tap < ${TAPS}; tap++) {
        let at = input_place(p, tap);
        if (at.y != 0u) {
            var x_at = x + at.x;
            var f_at = filter_place(tap);
            for (var channel = 0u; channel < channels; channel++) {
                let value = ${LOAD_X}(x_at);
//#for i CT
                acc_${i} += value * ${LOAD_F}(f_${i} + f_at);
//#end
                x_at += ${X_CHANNEL};
                f_at += ${F_CHANNEL};
            }
        }
    }
//#for i CT
    if (row + ${i}u < outputs) {
        finish(g, row + ${i}u, q, acc_${i});
    }
//#end
}
