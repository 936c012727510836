// Elements by index. The generator gives id_of(at) (the word to check, and 0 if it fits 32 bits), and sizes. Elements are
// moved as bits. An invocation writes one element, or one word of them.
//#include fault.wgsl
fn element(k: u32) -> ${T} {
    let j = k % ${INNER};
    let flat = k / ${INNER};
    let i = flat % ${N};
    let o = flat / ${N};
    let id = id_of(${IDS} + o * ${IDS_O} + i * ${IDS_N} + j * ${IDS_J});
    if (id.y == 0u && id.x < ${ROWS}) {
        return ${LOAD}(${SOURCE} + o * ${SOURCE_O} + id.x * ${SOURCE_N} + j * ${SOURCE_J});
    }
    report(id);
    return ${T}();
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let t = (wid.y * nwg.x + wid.x) * 64u + lid;
    let first = t * ${PER}u;
    if (first >= ${COUNT}) {
        return;
    }
//#if SINGLE
    ${STORE}(first, element(first));
//#else
    var bits = 0u;
    for (var lane = 0u; lane < ${PER}u; lane++) {
        if (first + lane < ${COUNT}) {
            bits |= element(first + lane) << (lane * (32u / ${PER}u));
        }
    }
    out0[t] = bits;
//#endif
}
