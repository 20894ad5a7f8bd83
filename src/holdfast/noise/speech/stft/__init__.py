"""Short-time Fourier transforms and their inverses, as libraries do them; one file a library.

    @stage("stft", inverse=…, systems="…")
    def vendor_x(wave: Wave, spectrum: Spectrum) -> Complex: ...

The numpy operator is the definition. With x the wave, w the window of `window_length` samples in the middle
of n_fft samples that are 0 elsewhere, H the hop and N = n_fft:

    X[k, i] = Σ_{n<N} w[n] · x̃[i·H + n] · exp(−2πi·k·n / N),     k = 0 … N/2

x̃ is the wave with N/2 samples added at each end (mirrored without repeating the end, or zeros) if `centre`,
else the wave itself. An inverse takes X, the spectrum and the length wanted, and gives the wave whose
transform is nearest to X (Griffin and Lim 1984, equation 6):

    x̃[m] = Σ_i w[m − i·H] · x_i[m − i·H] / Σ_i w²[m − i·H],       x_i the inverse FFT of X[:, i]
"""
