/* A function without references, so that it runs wherever its bytes are mapped. */
unsigned long late_code(unsigned long rounds) {
    unsigned long sum = 1;
    while (rounds--) {
        sum = sum * 6364136223846793005UL + rounds;
        __asm__ volatile("" : "+r"(sum));
    }
    return sum;
}
