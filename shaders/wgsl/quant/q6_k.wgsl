// Q6_K as repacked (see quant/mod.rs): a row is [32 words of low nibbles a block of 256][16 words of high bit pairs]
// [4 words of signed scales][f16 d, two a word], each plane for all blocks; x = d * scale * (q - 32), a scale for 16
// elements. Eight elements are one word of nibbles (as in Q4_1) and 16 bits of pairs, element i at bit 2 i.
fn row_words_${P}(k: u32) -> u32 {
    return ((k / 256u) * 52u + (k / 256u + 1u) / 2u + 3u) & 0xfffffffcu;
}
// d * scale of the 16 elements that hold e.
fn scale_${P}(base: u32, k: u32, e: u32) -> f32 {
    let blocks = k / 256u;
    let block = e >> 8u;
    let d = unpack2x16float(${W}(base + blocks * 52u + (block >> 1u)) >> ((block & 1u) * 16u)).x;
    let word = ${W}(base + blocks * 48u + (e >> 6u));
    return d * f32(extractBits(bitcast<i32>(word), ((e >> 4u) & 3u) * 8u, 8u));
}
fn pairs_${P}(base: u32, k: u32, e: u32) -> u32 {
    return (${W}(base + (k / 256u) * 32u + (e >> 4u)) >> (((e >> 3u) & 1u) * 16u)) & 0xffffu;
}
fn w8_${P}(base: u32, k: u32, e: u32) -> W8 {
    let w = ${W}(base + (e >> 3u));
    let high = pairs_${P}(base, k, e);
    let d = scale_${P}(base, k, e);
    let a = t_nibbles(w) + 16.0 * t_pairs(high) - 32.0;
    let b = t_nibbles(w >> 4u) + 16.0 * t_pairs(high >> 8u) - 32.0;
    return W8(d * a, d * b);
}
// The 32 elements from e on: 4 words, 2 words of pairs, two scales of one word.
fn raw_${P}(base: u32, k: u32, e: u32) -> Raw32 {
    var r: Raw32;
    let blocks = k / 256u;
    r.q = ${V}(base + (e >> 3u));
    let high = base + blocks * 32u + (e >> 4u);
    r.h = vec4<u32>(${W}(high), ${W}(high + 1u), 0u, 0u);
    let block = e >> 8u;
    let d = unpack2x16float(${W}(base + blocks * 52u + (block >> 1u)) >> ((block & 1u) * 16u)).x;
    let scales = bitcast<i32>(${W}(base + blocks * 48u + (e >> 6u)) >> (((e >> 5u) & 1u) * 16u));
    r.d = vec4<f32>(d * f32(extractBits(scales, 0u, 8u)), d * f32(extractBits(scales, 8u, 8u)), 0.0, 0.0);
    return r;
}
fn high_${P}(r: Raw32, i: u32) -> u32 {
    return (select(r.h.y, r.h.x, i < 2u) >> ((i & 1u) * 16u)) & 0xffffu;
}
fn eight_${P}(r: Raw32, i: u32) -> W8 {
    let w = r.q[i];
    let high = high_${P}(r, i);
    let d = select(r.d.y, r.d.x, i < 2u);
    let a = t_nibbles(w) + 16.0 * t_pairs(high) - 32.0;
    let b = t_nibbles(w >> 4u) + 16.0 * t_pairs(high >> 8u) - 32.0;
    return W8(d * a, d * b);
}
//#if Q8
// Four bytes q - 32: the nibbles of w's bytes, and 2 bits each of `high`.
fn six_${P}(w: u32, high: u32) -> u32 {
    var bytes = w & 0x0f0f0f0fu;
    bytes |= ((high & 3u) << 4u) | ((high & 12u) << 10u) | ((high & 48u) << 16u) | ((high & 192u) << 22u);
    // Each byte is below 64; flipping bit 5 and extending it to the sign subtracts 32.
    let flipped = bytes ^ 0x20202020u;
    return flipped | ((flipped & 0x20202020u) * 6u);
}
fn wq_${P}(base: u32, k: u32, e: u32) -> Q32 {
    var result: Q32;
    let r = raw_${P}(base, k, e);
    for (var i = 0u; i < 4u; i++) {
        let w = r.q[i];
        let high = high_${P}(r, i);
        result.q[2u * i] = six_${P}(w, high);
        result.q[2u * i + 1u] = six_${P}(w >> 4u, high >> 8u);
    }
    result.d0 = r.d.x;
    result.d1 = r.d.y;
    result.m = 0.0;
    return result;
}
//#endif
