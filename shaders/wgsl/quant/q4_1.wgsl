// Q4_1 as repacked (see quant/mod.rs): a row is [4 words of nibbles a block of 32][f16 d and m, a word a block], and
// x = d * q + m. Byte i of a nibble word holds element i below and element i + 4 above, of its 8 elements.
fn row_words_${P}(k: u32) -> u32 {
    return ((k / 32u) * 5u + 3u) & 0xfffffffcu;
}
fn w8_${P}(base: u32, k: u32, e: u32) -> W8 {
    let w = ${W}(base + (e >> 3u));
    let dm = unpack2x16float(${W}(base + (k / 32u) * 4u + (e >> 5u)));
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
    let dm = unpack2x16float(${W}(base + (k / 32u) * 4u + (e >> 5u)));
    result.d0 = dm.x;
    result.d1 = dm.x;
    result.m = dm.y;
    return result;
}
//#endif
