"""Slow, plain oracles written from the equations, in float64 NumPy."""

import numpy as np


def logistic_gradients(kernel, bias, pixels, labels):
    """Per-example gradients of softmax regression: (p - y) x^T and p - y."""
    logits = pixels @ kernel + bias
    logits = logits - logits.max(axis=1, keepdims=True)
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1.0
    return pixels[:, :, None] * p[:, None, :], p


def clipped_sum(kernel_grads, bias_grads, kernel_mask, bias_mask, bound):
    """sum_m mask * g_m * min(1, bound / ||mask * g_m||), one example at a time."""
    total_kernel = np.zeros(kernel_mask.shape)
    total_bias = np.zeros(bias_mask.shape)
    norms = []
    for gk, gb in zip(kernel_grads, bias_grads, strict=True):
        gk, gb = gk * kernel_mask, gb * bias_mask
        norm = np.sqrt((gk**2).sum() + (gb**2).sum())
        factor = 1.0 if norm <= bound else bound / norm
        total_kernel += factor * gk
        total_bias += factor * gb
        norms.append(norm)
    return total_kernel, total_bias, np.array(norms)


def local_dp_sgd(kernel, bias, steps, masks, noises, *, bound, noise_std, rate, batch):
    """Algorithm 1 of the paper, client side, for softmax regression.

    `steps` yields (pixels, labels) of every local batch, `noises` (kernel, bias) unit
    normals of every step; returns the parameters after the last step.
    """
    kernel, bias = kernel.astype(np.float64), bias.astype(np.float64)
    for (pixels, labels), (noise_kernel, noise_bias) in zip(steps, noises, strict=True):
        grads = logistic_gradients(kernel, bias, pixels, labels)
        sum_kernel, sum_bias, _ = clipped_sum(*grads, *masks, bound)
        noisy_kernel = masks[0] * (sum_kernel + noise_std * noise_kernel)
        noisy_bias = masks[1] * (sum_bias + noise_std * noise_bias)
        kernel = kernel - rate * noisy_kernel / batch
        bias = bias - rate * noisy_bias / batch
    return kernel, bias
