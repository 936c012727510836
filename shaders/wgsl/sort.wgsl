// Rows of keys in order, each with its position in the row; equal keys keep their order. The generator gives
//   key_of(row, i) -> ${K}      the key of an element, in unsigned order
//   less(a, b)                  that order
//   ROWS, N                     sizes; M: the power of two that holds a row, at most TILE; TILES: tiles of a row
// `tile` sorts tiles of 1024 in workgroup memory, by a bitonic network over (key, position): a tile is part of a long row,
// or holds several short ones. Each merge doubles the width of the runs, from one half of the scratch buffer into the
// other (merge path: Odeh et al., "Merge path - parallel merging made simple", 2012). The width passes from launch to launch
// in the first two words of the scratch buffer: a launch reads one and writes the other.
// With EMIT, the last launch writes positions to the output; else pairs lie in half (merges % 2).
const TILE = 1024u;
const ITEMS = 8u;
var<workgroup> keys: array<${K}, 1024>;
var<workgroup> ids: array<u32, 1024>;
fn key_at(half_: u32, at: u32) -> ${K} {
    let w = 4u + (half_ * ${ROWS} * ${N} + at) * ${PAIR}u;
//#if LONG
    return vec2<u32>(scratch[w + 1u], scratch[w + 2u]);
//#else
    return scratch[w + 1u];
//#endif
}
fn id_at(half_: u32, at: u32) -> u32 {
    return scratch[4u + (half_ * ${ROWS} * ${N} + at) * ${PAIR}u];
}
fn put(half_: u32, at: u32, key: ${K}, id: u32) {
    let w = 4u + (half_ * ${ROWS} * ${N} + at) * ${PAIR}u;
    scratch[w] = id;
//#if LONG
    scratch[w + 1u] = key.x;
    scratch[w + 2u] = key.y;
//#else
    scratch[w + 1u] = key;
//#endif
}
//#if EMIT
fn place(row: u32, i: u32) -> u32 {
    return ((row / ${INNER}) * ${N} + i) * ${INNER} + row % ${INNER};
}
//#endif
fn after(a: u32, b: u32) -> bool {
    let x = keys[a];
    let y = keys[b];
    return less(y, x) || (!less(x, y) && ids[b] < ids[a]);
}
@compute @workgroup_size(256)
fn tile(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let group = wid.y * nwg.x + wid.x;
    let m = ${M};
    let first = (group / ${TILES}) * (TILE / m);
    let start = (group % ${TILES}) * TILE;
    for (var s = lid; s < TILE; s += 256u) {
        let row = first + s / m;
        let i = start + s % m;
        // What fills up comes last: its position is larger than all.
        var key = ${LAST};
        var id = 0xffffffffu;
        if (row < ${ROWS} && i < ${N}) {
            key = key_of(row, i);
            id = i;
        }
        keys[s] = key;
        ids[s] = id;
    }
    workgroupBarrier();
    for (var k = 2u; k <= m; k = k * 2u) {
        for (var j = k / 2u; j > 0u; j = j / 2u) {
            for (var t = lid; t < TILE / 2u; t += 256u) {
                let a = 2u * t - (t & (j - 1u));
                let b = a + j;
                if (after(a, b) == ((a & (m - 1u) & k) == 0u)) {
                    let key = keys[a];
                    let id = ids[a];
                    keys[a] = keys[b];
                    ids[a] = ids[b];
                    keys[b] = key;
                    ids[b] = id;
                }
            }
            workgroupBarrier();
        }
    }
    for (var s = lid; s < TILE; s += 256u) {
        let row = first + s / m;
        let i = start + s % m;
        if (row < ${ROWS} && i < ${N}) {
//#if EMIT
            if (${TILES} == 1u) {
                out0[place(row, i)] = ids[s];
            } else {
                put(0u, row * ${N} + i, keys[s], ids[s]);
            }
//#else
            put(0u, row * ${N} + i, keys[s], ids[s]);
//#endif
        }
    }
    if (group == 0u && lid == 0u) {
        scratch[0] = TILE;
    }
}
fn merge(half_: u32, width: u32, t: u32) {
    let n = ${N};
    let shares = (n + ITEMS - 1u) / ITEMS;
    let row = t / shares;
    if (row >= ${ROWS}) {
        return;
    }
    let first = (t % shares) * ITEMS;
    let start = first / (2u * width) * (2u * width);
    let a = row * n + start;
    let in_a = min(width, n - start);
    let b = a + in_a;
    let in_b = min(2u * width, n - start) - in_a;
    // How many of the first d elements come from a: the largest that a's order allows.
    let d = first - start;
    var low = max(d, in_b) - in_b;
    var high = min(d, in_a);
    while (low < high) {
        let middle = (low + high) / 2u;
        if (less(key_at(half_, b + d - 1u - middle), key_at(half_, a + middle))) {
            high = middle;
        } else {
            low = middle + 1u;
        }
    }
    var i = low;
    var j = d - low;
    for (var k = first; k < min(first + ITEMS, n); k++) {
        var from_a = i < in_a;
        if (from_a && j < in_b) {
            from_a = !less(key_at(half_, b + j), key_at(half_, a + i));
        }
        let at = select(b + j, a + i, from_a);
        i += select(0u, 1u, from_a);
        j += select(1u, 0u, from_a);
//#if EMIT
        if (2u * width >= n) {
            out0[place(row, k)] = id_at(half_, at);
        } else {
            put(1u - half_, row * n + k, key_at(half_, at), id_at(half_, at));
        }
//#else
        put(1u - half_, row * n + k, key_at(half_, at), id_at(half_, at));
//#endif
    }
}
//#for HALF 2
@compute @workgroup_size(64)
fn merge${HALF}(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let t = (wid.y * nwg.x + wid.x) * 64u + lid;
    let width = scratch[${HALF}u];
    merge(${HALF}u, width, t);
    if (t == 0u) {
        scratch[1u - ${HALF}u] = 2u * width;
    }
}
//#end
