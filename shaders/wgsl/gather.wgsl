// Whole rows by index. The generator gives id_of(i) (the word to check, and whether it fits 32 bits), and sizes.
// An invocation writes ${UNIT} elements of the output, which is contiguous over [outer, ids, inner].
const MISSING = 0u;
const HERE = 1u;
const ELSEWHERE = 2u;
fn row_of(flat: u32) -> vec3<u32> {
    // The row's index in the source; whether the source has it, and has it among the rows that are bound; and the id's
    // other word.
    let i = flat % ${IDS};
    let id = id_of(i);
    let there = select(ELSEWHERE, HERE, id.x - ${FIRST} < ${BOUND});
    return vec3<u32>(id.x, select(MISSING, there, id.y == 0u && id.x < ${ROWS}), id.y);
}
//#include fault.wgsl
//#if QUANTIZED
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let t = (wid.y * nwg.x + wid.x) * 64u + lid;
    let units = ${INNER} / 8u;
    let flat = t / max(units, 1u);
    if (flat >= ${IDS}) {
        return;
    }
    let e = (t % units) * 8u;
    let row = row_of(flat);
    var w = W8(vec4<f32>(0.0), vec4<f32>(0.0));
    if (row.y == ELSEWHERE) {
        return;
    }
    if (row.y == HERE) {
        let base = ((${OFFSET} + (row.x - ${FIRST}) * ${ROW_STRIDE}) / ${INNER}) * row_words_q(${INNER});
        w = w8_q(base, ${INNER}, e);
    } else if (e == 0u) {
        report(row.xz);
    }
    let at = ${OUT} + flat * ${INNER} + e;
    ${STORE4}(at, w.a.x, w.a.y, w.a.z, w.a.w);
    ${STORE4}(at + 4u, w.b.x, w.b.y, w.b.z, w.b.w);
}
//#else
fn element(n: u32) -> ${T} {
//#if !SINGLE
    // What lies past the end stays as it is, and what another window has too.
    if (n >= ${COUNT}) {
        return ${KEPT}(${OUT} + n);
    }
//#endif
    let flat = n / ${INNER};
    let j = n % ${INNER};
    let row = row_of(flat);
    if (row.y == HERE) {
        let from_ = ${LOAD}(${OFFSET} + (flat / ${IDS}) * ${OUTER_STRIDE} + (row.x - ${FIRST}) * ${ROW_STRIDE} + j);
        return ${CAST};
    }
//#if !SINGLE
    if (row.y == ELSEWHERE) {
        return ${KEPT}(${OUT} + n);
    }
//#endif
    if (j == 0u) {
        report(row.xz);
    }
    return ${T}();
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let n = ((wid.y * nwg.x + wid.x) * 64u + lid) * ${UNIT}u;
    if (n >= ${COUNT}) {
        return;
    }
//#if SINGLE
    if (row_of(n / ${INNER}).y != ELSEWHERE) {
        ${STORE}(${OUT} + n, element(n));
    }
//#else
    ${STORE4}(${OUT} + n, element(n), element(n + 1u), element(n + 2u), element(n + 3u));
//#endif
}
//#endif
