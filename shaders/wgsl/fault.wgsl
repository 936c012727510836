// Ids that name no row: the first is kept for the host.
fn report(index: u32) {
    let old = atomicCompareExchangeWeak(&fault[0], 0u, 1u);
    if (old.exchanged) {
        atomicStore(&fault[1], ${STEP});
        atomicStore(&fault[2], index);
    }
}
