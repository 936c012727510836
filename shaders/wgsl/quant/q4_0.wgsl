// Q4_0 as repacked (see quant/mod.rs): a row is [4 words of nibbles a block of 32][f16 d, two a word], and
// x = d * (q - 8). Byte i of a nibble word holds element i below and element i + 4 above, of its 8 elements.
fn row_words_${P}(k: u32) -> u32 {
    return ((k / 32u) * 4u + (k / 32u + 1u) / 2u + 3u) & 0xfffffffcu;
}
fn scale_${P}(base: u32, k: u32, block: u32) -> f32 {
    return unpack2x16float(${W}(base + (k / 32u) * 4u + (block >> 1u)) >> ((block & 1u) * 16u)).x;
}
fn w8_${P}(base: u32, k: u32, e: u32) -> W8 {
    let w = ${W}(base + (e >> 3u));
    let d = scale_${P}(base, k, e >> 5u);
    return W8(d * (t_nibbles(w) - 8.0), d * (t_nibbles(w >> 4u) - 8.0));
}
fn raw_${P}(base: u32, k: u32, e: u32) -> Raw32 {
    var r: Raw32;
    r.q = ${V}(base + (e >> 3u));
    r.d.x = scale_${P}(base, k, e >> 5u);
    return r;
}
fn eight_${P}(r: Raw32, i: u32) -> W8 {
    let w = r.q[i];
    return W8(r.d.x * (t_nibbles(w) - 8.0), r.d.x * (t_nibbles(w >> 4u) - 8.0));
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
    result.m = -8.0 * r.d.x;
    return result;
}
//#endif
