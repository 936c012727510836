// Q8_0 as repacked (see quant/mod.rs): a row is [8 words of signed bytes a block of 32][f16 d, two a word], x = d * q.
fn row_words_${P}(k: u32) -> u32 {
    return ((k / 32u) * 8u + (k / 32u + 1u) / 2u + 3u) & 0xfffffffcu;
}
fn scale_${P}(base: u32, k: u32, block: u32) -> f32 {
    return unpack2x16float(${W}(base + (k / 32u) * 8u + (block >> 1u)) >> ((block & 1u) * 16u)).x;
}
fn w8_${P}(base: u32, k: u32, e: u32) -> W8 {
    let d = scale_${P}(base, k, e >> 5u);
    let at = base + (e >> 2u);
    return W8(d * t_signed_bytes(${W}(at)), d * t_signed_bytes(${W}(at + 1u)));
}
//#if Q8
fn wq_${P}(base: u32, k: u32, e: u32) -> Q32 {
    var result: Q32;
    for (var i = 0u; i < 8u; i++) {
        result.q[i] = ${W}(base + (e >> 2u) + i);
    }
    let d = scale_${P}(base, k, e >> 5u);
    result.d0 = d;
    result.d1 = d;
    result.m = 0.0;
    return result;
}
//#endif
