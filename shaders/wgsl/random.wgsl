// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a block of four words from a
// counter and a key. An invocation draws one block: elements 4 t to 4 t + 3.
fn philox(start: vec4<u32>, key_low: u32, key_high: u32) -> vec4<u32> {
    var c = start;
    var k = vec2<u32>(key_low, key_high);
    for (var round_ = 0u; round_ < 10u; round_++) {
        let hi0 = t_mulhi(0xd2511f53u, c.x);
        let lo0 = 0xd2511f53u * c.x;
        let hi1 = t_mulhi(0xcd9e8d57u, c.z);
        let lo1 = 0xcd9e8d57u * c.z;
        c = vec4<u32>(hi1 ^ c.y ^ k.x, lo1, hi0 ^ c.w ^ k.y, lo0);
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c;
}
//#if NORMAL
fn pair(w0: u32, w1: u32) -> vec2<f32> {
    let u0 = f32((w0 >> 8u) + 1u) * 5.9604644775390625e-8;
    let u1 = f32(w1 >> 8u) * 5.9604644775390625e-8;
    let r = sqrt(max(-2.0 * log(u0), 0.0));
    let angle = 6.283185307179586 * u1;
    return vec2<f32>(r * t_cos(angle), r * t_sin(angle));
}
//#endif
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let t = (wid.y * nwg.x + wid.x) * 64u + lid;
    let n = ${COUNT};
    if (t >= (n + 3u) / 4u) {
        return;
    }
    let w = philox(vec4<u32>(${BLOCK} + t, 0u, ${COUNTER_LOW}, ${COUNTER_HIGH}), ${KEY_LOW}, ${KEY_HIGH});
    let first = ${FIRST};
    let second = ${SECOND};
//#if NORMAL
    let a = pair(w.x, w.y);
    let b = pair(w.z, w.w);
    let v = first + second * vec4<f32>(a.x, a.y, b.x, b.y);
//#else
    let v = first + (second - first) * (vec4<f32>(w >> vec4<u32>(8u)) * 5.9604644775390625e-8);
//#endif
    let i = t * 4u;
//#if PACKED
    ${STORE4}(i, v.x, v.y, v.z, v.w);
//#else
    if (i + 4u <= n) {
        ${STORE4}(i, v.x, v.y, v.z, v.w);
    } else {
        for (var j = 0u; i + j < n; j++) {
            ${STORE}(i + j, v[j]);
        }
    }
//#endif
}
