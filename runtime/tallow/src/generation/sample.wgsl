// The choice of a token from the logits of one position, by one workgroup: in0 are the logits, out is {id, status}, and a
// status other than 0 says that some logit is NaN or infinite, or none is above minus infinity.
// Scalars: 0 temperature (0: the most likely), 1 top-k (1 to 256), 2 top-p, 3 min-p, 4 the random share, of [0, 1).
//
// The k best are found by radix selection (8 bits a round) on keys that order as the logits do, then on ids, so that of
// equals the lowest stay. Elements below the k-th best of what the 256 invocations found best cannot be among them: the
// histograms leave those out. The rest works on the k candidates in the order of their ids, so that sums are the same
// each time.
var<workgroup> keys: array<u32, 256>;
var<workgroup> ids: array<u32, 256>;
var<workgroup> sorted_keys: array<u32, 256>;
var<workgroup> sorted_ids: array<u32, 256>;
var<workgroup> shares: array<f32, 256>;
var<workgroup> histogram: array<atomic<u32>, 256>;
var<workgroup> found: atomic<u32>;
var<workgroup> wrong: atomic<u32>;
// What all invocations go by: {key, id} of the best; a bound; {digit, wanted of its bin, its count}.
var<workgroup> best: vec2<u32>;
var<workgroup> bound: u32;
var<workgroup> chosen: vec3<u32>;
var<workgroup> failed: u32;

const LOWEST = 0x007fffffu; // the key of minus infinity

// Unsigned keys in the order of floats; -0 is 0.
fn key_of(i: u32) -> u32 {
    var bits = bitcast<u32>(in0[i]);
    if (bits == 0x80000000u) {
        bits = 0u;
    }
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

fn value_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}

fn weight_of(key: u32, top: f32) -> f32 {
    if (key <= LOWEST) {
        return 0.0;
    }
    return exp((value_of(key) - top) / param(0u));
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lid: u32) {
    let n = in0_len();
    var mine = 0u;
    var at = 0u;
    var bad = 0u;
    for (var i = lid; i < n; i += 256u) {
        let key = key_of(i);
        // Plus infinity, and NaN of either sign.
        if (key >= 0xff800000u || key < LOWEST) {
            bad = 1u;
        }
        if (key > mine) {
            mine = key;
            at = i;
        }
    }
    keys[lid] = mine;
    ids[lid] = at;
    if (bad != 0u) {
        atomicOr(&wrong, 1u);
    }
    workgroupBarrier();
    let k = u32(clamp(param(1u), 1.0, f32(min(n, 256u))));
    // Each invocation's place among all, of equals the lowest id first.
    var place = 0u;
    for (var j = 0u; j < 256u; j++) {
        place += u32(keys[j] > mine || (keys[j] == mine && (ids[j] < at || (ids[j] == at && j < lid))));
    }
    if (place == 0u) {
        best = vec2<u32>(mine, at);
        failed = u32(atomicLoad(&wrong) != 0u || mine <= LOWEST);
    }
    if (place == k - 1u) {
        bound = mine;
    }
    if (workgroupUniformLoad(&failed) != 0u) {
        if (lid == 0u) {
            out[0] = 0u;
            out[1] = 1u;
        }
        return;
    }
    let top = workgroupUniformLoad(&best);
    if (param(0u) <= 0.0 || k == 1u) {
        if (lid == 0u) {
            out[0] = top.y;
            out[1] = 0u;
        }
        return;
    }
    let least = workgroupUniformLoad(&bound);
    // Kept are keys above `prefix` in the bits of `mask`, and equal ones whose ~id is not below `low` in those of `low_mask`.
    var prefix = 0u;
    var mask = 0u;
    var low = 0u;
    var low_mask = 0u;
    var rest = k;
    for (var round = 0u; round < 8u; round++) {
        atomicStore(&histogram[lid], 0u);
        workgroupBarrier();
        let shift = 24u - 8u * (round & 3u);
        for (var i = lid; i < n; i += 256u) {
            let key = key_of(i);
            if (key >= least && (key & mask) == prefix && (~i & low_mask) == low) {
                atomicAdd(&histogram[(select(~i, key, round < 4u) >> shift) & 255u], 1u);
            }
        }
        workgroupBarrier();
        if (lid == 0u) {
            var above = 0u;
            var digit = 255u;
            var count = atomicLoad(&histogram[255]);
            while (above + count < rest && digit > 0u) {
                above += count;
                digit -= 1u;
                count = atomicLoad(&histogram[digit]);
            }
            chosen = vec3<u32>(digit, rest - above, count);
        }
        let next = workgroupUniformLoad(&chosen);
        rest = next.y;
        if (round < 4u) {
            prefix |= next.x << shift;
            mask |= 255u << shift;
        } else {
            low |= next.x << shift;
            low_mask |= 255u << shift;
        }
        if (next.y == next.z) {
            break;
        }
    }
    for (var i = lid; i < n; i += 256u) {
        let key = key_of(i);
        if (key >= least && ((key & mask) > prefix || ((key & mask) == prefix && (~i & low_mask) >= low))) {
            let slot = min(atomicAdd(&found, 1u), 255u);
            keys[slot] = key;
            ids[slot] = i;
        }
    }
    workgroupBarrier();
    if (lid < k) {
        var position = 0u;
        for (var j = 0u; j < k; j++) {
            position += u32(ids[j] < ids[lid]);
        }
        sorted_keys[position] = keys[lid];
        sorted_ids[position] = ids[lid];
    }
    workgroupBarrier();
    let highest = value_of(top.x);
    if (lid < k) {
        let own = sorted_keys[lid];
        var total = 0.0;
        var before = 0.0;
        for (var j = 0u; j < k; j++) {
            let other = sorted_keys[j];
            let weight = weight_of(other, highest);
            total += weight;
            // Of equals the lower id, which stands before.
            if (other > own || (other == own && j < lid)) {
                before += weight;
            }
        }
        let weight = weight_of(own, highest);
        let first = own == top.x && sorted_ids[lid] == top.y;
        let likely = first || param(2u) >= 1.0 || before < param(2u) * total;
        shares[lid] = select(0.0, weight, likely && weight >= param(3u));
    }
    workgroupBarrier();
    if (lid == 0u) {
        var total = 0.0;
        for (var j = 0u; j < k; j++) {
            total += shares[j];
        }
        let goal = param(4u) * total;
        var sum = 0.0;
        var id = top.y;
        for (var j = 0u; j < k; j++) {
            if (shares[j] > 0.0) {
                id = sorted_ids[j];
                sum += shares[j];
                if (sum > goal) {
                    break;
                }
            }
        }
        out[0] = id;
        out[1] = 0u;
    }
}
