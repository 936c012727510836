// Q4_K as repacked (see quant/mod.rs): a row is [32 words of nibbles a block of 256][4 words a block: f16 d and dmin, then
// the file's 12 bytes of 6-bit scales and minima], and x = d * scale * q - dmin * minimum, in sub-blocks of 32.
fn row_words_${P}(k: u32) -> u32 {
    return (k / 256u) * 36u;
}
// Scale and (negative) minimum of the sub-block that holds element e: the first four of each in 6 bits of a byte, the others
// in 4 bits of the last four bytes and the top 2 bits of the first eight.
fn scale_${P}(base: u32, k: u32, e: u32) -> vec2<f32> {
    let head = ${V}(base + (k / 256u) * 32u + (e >> 8u) * 4u);
    let dm = unpack2x16float(head.x);
    let j = (e >> 5u) & 7u;
    let bytes = (head.yzw >> vec3<u32>((j & 3u) * 8u)) & vec3<u32>(0xffu);
    let four = vec2<u32>(bytes.z & 15u, bytes.z >> 4u) | ((bytes.xy >> vec2<u32>(6u)) << vec2<u32>(4u));
    let six = vec2<f32>(select(four, bytes.xy & vec2<u32>(63u), j < 4u));
    return vec2<f32>(dm.x * six.x, -dm.y * six.y);
}
fn w8_${P}(base: u32, k: u32, e: u32) -> W8 {
    let w = ${W}(base + (e >> 3u));
    let dm = scale_${P}(base, k, e);
    return W8(dm.x * t_nibbles(w) + dm.y, dm.x * t_nibbles(w >> 4u) + dm.y);
}
fn raw_${P}(base: u32, k: u32, e: u32) -> Raw32 {
    var r: Raw32;
    r.q = ${V}(base + (e >> 3u));
    r.d = vec4<f32>(scale_${P}(base, k, e), 0.0, 0.0);
    return r;
}
fn eight_${P}(r: Raw32, i: u32) -> W8 {
    let w = r.q[i];
    return W8(r.d.x * t_nibbles(w) + r.d.y, r.d.x * t_nibbles(w >> 4u) + r.d.y);
}
//#if Q8
fn wq_${P}(base: u32, k: u32, e: u32) -> Q32 {
    var result: Q32;
    let r = raw_${P}(base, k, e);
    for (var i = 0u; i < 4u; i++) {
        let w = r.q[i];
        result.q[2u * i] = w & 0x0f0f0f0fu;
        result.q[2u * i + 1u] = (w >> 4u) & 0x0f0f0f0fu;
    }
    result.d0 = r.d.x;
    result.d1 = r.d.x;
    result.m = r.d.y;
    return result;
}
//#endif
