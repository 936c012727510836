// A reduction whose neighbouring results lie side by side in memory while its rows do not (a sum over the first axis):
// 16 neighbours and 16 slices of the row a workgroup, so that reads are of neighbours. Functions as in row.wgsl.
var<workgroup> shared_a: array<${T}, 256>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let group = wid.y * nwg.x + wid.x;
    let r = group * 16u + (lid & 15u);
    let n = ${LENGTH};
    var total = identity();
    if (r < ${ROWS}) {
        begin(r);
        for (var j = lid >> 4u; j < n; j += 16u) {
            total = combine(total, before(j));
        }
    }
    shared_a[lid] = total;
    workgroupBarrier();
    for (var half_ = 128u; half_ >= 16u; half_ = half_ / 2u) {
        if (lid < half_) {
            shared_a[lid] = combine(shared_a[lid], shared_a[lid + half_]);
        }
        workgroupBarrier();
    }
    if (lid < 16u && r < ${ROWS}) {
        var result = shared_a[lid];
//#if MEAN
        result = result / f32(n);
//#endif
        finish(r, 0u, result);
    }
}
