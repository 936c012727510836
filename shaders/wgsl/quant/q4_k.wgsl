// Q4_K as repacked (see quant/mod.rs): a row is [32 words of nibbles a block of 256][4 words a block: f16 d and dmin, then
// the file's 12 bytes of 6-bit scales and minima], and x = d * scale * q - dmin * minimum, in sub-blocks of 32.
fn row_words_${P}(k: u32) -> u32 {
    return (k / 256u) * 36u;
}
// Byte i of the 12 bytes.
fn six_${P}(at: u32, i: u32) -> u32 {
    return (${W}(at + 1u + (i >> 2u)) >> ((i & 3u) * 8u)) & 0xffu;
}
// Scale and (negative) minimum of the sub-block that holds element e.
fn scale_${P}(base: u32, k: u32, e: u32) -> vec2<f32> {
    let at = base + (k / 256u) * 32u + (e >> 8u) * 4u;
    let dm = unpack2x16float(${W}(at));
    let j = (e >> 5u) & 7u;
    var s = 0u;
    var m = 0u;
    if (j < 4u) {
        s = six_${P}(at, j) & 63u;
        m = six_${P}(at, j + 4u) & 63u;
    } else {
        let both = six_${P}(at, j + 4u);
        s = (both & 15u) | ((six_${P}(at, j - 4u) >> 6u) << 4u);
        m = (both >> 4u) | ((six_${P}(at, j) >> 6u) << 4u);
    }
    return vec2<f32>(dm.x * f32(s), -dm.y * f32(m));
}
fn w8_${P}(base: u32, k: u32, e: u32) -> W8 {
    let w = ${W}(base + (e >> 3u));
    let dm = scale_${P}(base, k, e);
    return W8(dm.x * t_nibbles(w) + dm.y, dm.x * t_nibbles(w >> 4u) + dm.y);
}
//#if Q8
fn wq_${P}(base: u32, k: u32, e: u32) -> Q32 {
    var result: Q32;
    for (var i = 0u; i < 4u; i++) {
        let w = ${W}(base + (e >> 3u) + i);
        result.q[2u * i] = w & 0x0f0f0f0fu;
        result.q[2u * i + 1u] = (w >> 4u) & 0x0f0f0f0fu;
    }
    let dm = scale_${P}(base, k, e);
    result.d0 = dm.x;
    result.d1 = dm.x;
    result.m = dm.y;
    return result;
}
//#endif
