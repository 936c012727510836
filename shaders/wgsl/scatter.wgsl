// Elements written by index, in the order of i. The generator gives id_of(at) (the word to check, and 0 if it fits 32
// bits), old(i) (an element of the output) and combine(a, b).
// Without SORTED, an invocation owns a column, one (outer, inner) pair, and walks it. With SORTED, the ids of each column
// have been sorted (sort.wgsl; stable, so that i is in order within an id), and an invocation owns all of one id.
//#include fault.wgsl
fn id_in(c: u32, i: u32) -> vec2<u32> {
    return id_of(${IDS} + (c / ${INNER}) * ${IDS_O} + i * ${IDS_N} + (c % ${INNER}) * ${IDS_J});
}
fn source(c: u32, i: u32) -> ${T} {
    return ${LOAD}(${SOURCE} + (c / ${INNER}) * ${SOURCE_O} + i * ${SOURCE_N} + (c % ${INNER}) * ${SOURCE_J});
}
fn target_(c: u32, id: u32) -> u32 {
    return ((c / ${INNER}) * ${HEIGHT} + id) * ${INNER} + c % ${INNER};
}
//#if SORTED
fn key_of(c: u32, i: u32) -> u32 {
    let id = id_in(c, i);
    if (id.y == 0u && id.x < ${HEIGHT}) {
        return id.x;
    }
    report(id);
    return 0xffffffffu;
}
@compute @workgroup_size(64)
fn apply(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let p = (wid.y * nwg.x + wid.x) * 64u + lid;
    if (p >= ${ROWS} * ${N}) {
        return;
    }
    let c = p / ${N};
    let end = (c + 1u) * ${N};
    let id = key_at(${HALF}, p);
    if (id >= ${HEIGHT}) {
        return;
    }
    if (p % ${N} != 0u) {
        if (key_at(${HALF}, p - 1u) == id) {
            return;
        }
    }
    let at = target_(c, id);
    var result = old(at);
    // 32 a turn: llvmpipe ends all loops after 65,535 turns in all.
    for (var q = p; q < end; q += 32u) {
        if (key_at(${HALF}, q) != id) {
            break;
        }
//#for U 32
        if (q + ${U}u < end) {
            if (key_at(${HALF}, q + ${U}u) == id) {
                result = combine(result, source(c, id_at(${HALF}, q + ${U}u)));
            }
        }
//#end
    }
    ${STORE}(at, result);
}
//#else
fn step(c: u32, i: u32) {
    if (i >= ${N}) {
        return;
    }
    let id = id_in(c, i);
    if (id.y == 0u && id.x < ${HEIGHT}) {
        let at = target_(c, id.x);
        ${STORE}(at, combine(old(at), source(c, i)));
    } else {
        report(id);
    }
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let c = (wid.y * nwg.x + wid.x) * 64u + lid;
    if (c >= ${ROWS}) {
        return;
    }
    // 32 a turn: llvmpipe ends all loops after 65,535 turns in all.
    for (var i = 0u; i < ${N}; i += 32u) {
//#for U 32
        step(c, i + ${U}u);
//#end
    }
}
//#endif
