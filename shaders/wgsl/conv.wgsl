// A convolution as a matrix product whose right operand is never stored: output channels of a group by columns (positions,
// sample after sample), over the depth (tap by tap, all channels of each). A workgroup of 256 computes a tile of 64 channels
// and 64 columns, each invocation 4 x 4 of it; 16 of the depth at a time pass through workgroup memory. An invocation
// fetches for one place of the depth four neighbouring columns of the input, and four rows of the filter.
var<workgroup> tile_f: array<vec4<f32>, 256>;
var<workgroup> tile_x: array<vec4<f32>, 256>;

fn conv_tile(group: u32, lid: u32) {
    let outputs = ${OUTPUTS};
    let columns = ${COLUMNS};
    let channels = ${CHANNELS};
    let depth = ${DEPTH};
    let tiles_o = (outputs + 63u) / 64u;
    let tiles_q = (columns + 63u) / 64u;
    let row0 = (group % tiles_o) * 64u;
    let col0 = ((group / tiles_o) % tiles_q) * 64u;
    let g = group / (tiles_o * tiles_q);
    let quad = lid % 16u;
    let own = lid / 16u;
//#for i 4
    let q_${i} = min(col0 + quad * 4u + ${i}u, columns - 1u);
    let p_${i} = position(q_${i} % ${POSITIONS});
    let x_${i} = input_base(q_${i} / ${POSITIONS}, g);
    let f_${i} = filter_base(g, min(row0 + quad * 4u + ${i}u, outputs - 1u));
    var acc_${i} = vec4<f32>(0.0);
//#end
    var tap = own / channels;
    var channel = own % channels;
    var f_at = filter_place(tap);
//#for i 4
    var at_${i} = input_place(p_${i}, tap);
//#end
    for (var k = 0u; k < depth; k += 16u) {
        var x = vec4<f32>(0.0);
        var f = vec4<f32>(0.0);
        if (k + own < depth) {
            let x_channel = channel * ${X_CHANNEL};
            let f_channel = channel * ${F_CHANNEL} + f_at;
//#for i 4
            if (at_${i}.y != 0u) {
                x[${i}] = ${LOAD_X}(x_${i} + at_${i}.x + x_channel);
            }
            f[${i}] = ${LOAD_F}(f_${i} + f_channel);
//#end
        }
        tile_x[lid] = x;
        tile_f[lid] = f;
        workgroupBarrier();
        for (var u = 0u; u < 16u; u++) {
            let a = tile_f[u * 16u + own];
            let b = tile_x[u * 16u + quad];
//#for i 4
            acc_${i} += a[${i}] * b;
//#end
        }
        workgroupBarrier();
        channel += 16u;
        if (channel >= channels) {
            tap += channel / channels;
            channel = channel % channels;
            f_at = filter_place(tap);
//#for i 4
            at_${i} = input_place(p_${i}, tap);
//#end
        }
    }
//#for i 4
    if (row0 + own * 4u + ${i}u < outputs) {
//#for j 4
        if (col0 + quad * 4u + ${j}u < columns) {
            finish(g, row0 + own * 4u + ${i}u, col0 + quad * 4u + ${j}u, acc_${i}[${j}]);
        }
//#end
    }
//#end
}
