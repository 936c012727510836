// Split-K of part ${p}: a workgroup's share of the sums goes to scratch memory, [split][batch][row][column], and a second
// launch adds the shares in order and applies the epilogue. Where k is not split, results are stored at once.
fn keep_part${p}(split: u32, batch: u32, i: u32, j: u32, acc0: f32, acc1: f32) {
    if (${SPLITS} == 1u) {
        store_part${p}(batch, i, j, acc0, acc1);
        return;
    }
    let at = ${OFFSET} + (((split * ${BATCH} + batch) * ${M_SIZE} + i) * ${N} + j) * ${SUMS}u;
    scratch[at] = bitcast<u32>(acc0);
//#if PAIR
    scratch[at + 1u] = bitcast<u32>(acc1);
//#endif
}
fn combine_part${p}(result: u32) {
    let step = ${BATCH} * ${M_SIZE} * ${N} * ${SUMS}u;
    var at = ${OFFSET} + result * ${SUMS}u;
    var acc0 = 0.0;
    var acc1 = 0.0;
    for (var split = 0u; split < ${SPLITS}; split++) {
        acc0 += bitcast<f32>(scratch[at]);
//#if PAIR
        acc1 += bitcast<f32>(scratch[at + 1u]);
//#endif
        at += step;
    }
    let row = result / ${N};
    store_part${p}(row / ${M_SIZE}, row % ${M_SIZE}, result % ${N}, acc0, acc1);
}
