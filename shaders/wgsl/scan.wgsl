// Running results along rows. The generator gives combine(a, b) and identity(), and keep(i, v), kept(i) on the scratch
// buffer where BLOCKS is on. A row is one (outer, inner) pair; its elements lie apart by strides.
// SERIAL: an invocation walks a row. BLOCKS: the totals of blocks, their running results, then the blocks themselves, each
// a launch. Else a workgroup walks a row, a block at a time, and carries the result so far.
fn value(r: u32, i: u32) -> ${T} {
    return ${LOAD}(${SOURCE} + (r / ${INNER}) * ${SOURCE_O} + i * ${SOURCE_N} + (r % ${INNER}) * ${SOURCE_J});
}
fn place(r: u32, i: u32) -> u32 {
    return ((r / ${INNER}) * ${N} + i) * ${INNER} + r % ${INNER};
}
//#if SERIAL
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let r = (wid.y * nwg.x + wid.x) * 64u + lid;
    if (r >= ${ROWS}) {
        return;
    }
    var run = identity();
    // 32 a turn: llvmpipe ends all loops after 65,535 turns in all.
    for (var start = 0u; start < ${N}; start += 32u) {
//#for U 32
        if (start + ${U}u < ${N}) {
            run = combine(run, value(r, start + ${U}u));
            ${STORE}(place(r, start + ${U}u), run);
        }
//#end
    }
}
//#else
const ITEMS = 8u;
const BLOCK = 2048u;
var<workgroup> sums: array<${T}, 256>;
struct Span {
    before: ${T},
    total: ${T},
}
// What the invocations before this one have together, and all of them.
fn meet(mine: ${T}, lid: u32) -> Span {
    sums[lid] = mine;
    workgroupBarrier();
    for (var by = 1u; by < 256u; by = by * 2u) {
        var left = identity();
        if (lid >= by) {
            left = sums[lid - by];
        }
        workgroupBarrier();
        sums[lid] = combine(left, sums[lid]);
        workgroupBarrier();
    }
    var before = identity();
    if (lid > 0u) {
        before = sums[lid - 1u];
    }
    let total = sums[255];
    workgroupBarrier();
    return Span(before, total);
}
// One block: the carry for the next.
fn block(r: u32, start: u32, carry: ${T}, lid: u32) -> ${T} {
    let first = start + lid * ITEMS;
    var own: array<${T}, 8>;
    var run = identity();
    for (var k = 0u; k < ITEMS; k++) {
        if (first + k < ${N}) {
            run = combine(run, value(r, first + k));
        }
        own[k] = run;
    }
    let span = meet(run, lid);
    let before = combine(carry, span.before);
    for (var k = 0u; k < ITEMS; k++) {
        if (first + k < ${N}) {
            ${STORE}(place(r, first + k), combine(before, own[k]));
        }
    }
    return combine(carry, span.total);
}
//#if BLOCKS
@compute @workgroup_size(256)
fn totals(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let group = wid.y * nwg.x + wid.x;
    if (group < ${ROWS} * ${COUNT}) {
        let r = group / ${COUNT};
        let first = (group % ${COUNT}) * BLOCK + lid * ITEMS;
        var run = identity();
        for (var k = 0u; k < ITEMS; k++) {
            if (first + k < ${N}) {
                run = combine(run, value(r, first + k));
            }
        }
        let span = meet(run, lid);
        if (lid == 0u) {
            keep(group, span.total);
        }
    }
}
@compute @workgroup_size(256)
fn carries(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let r = wid.y * nwg.x + wid.x;
    if (r < ${ROWS}) {
        var carry = identity();
        for (var start = 0u; start < ${COUNT}; start += 256u) {
            let at = r * ${COUNT} + start + lid;
            let here = start + lid < ${COUNT};
            var mine = identity();
            if (here) {
                mine = kept(at);
            }
            let span = meet(mine, lid);
            if (here) {
                keep(at, combine(carry, span.before));
            }
            carry = combine(carry, span.total);
        }
    }
}
//#endif
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let group = wid.y * nwg.x + wid.x;
//#if BLOCKS
    if (group < ${ROWS} * ${COUNT}) {
        block(group / ${COUNT}, (group % ${COUNT}) * BLOCK, kept(group), lid);
    }
//#else
    if (group < ${ROWS}) {
        var carry = identity();
        for (var start = 0u; start < ${N}; start += BLOCK) {
            carry = block(group, start, carry, lid);
        }
    }
//#endif
}
//#endif
