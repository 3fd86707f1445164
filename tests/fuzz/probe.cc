// Compiles only where libFuzzer is.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }
