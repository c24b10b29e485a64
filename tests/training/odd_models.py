"""Flax models that interception must open, or recognise as beyond it."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class Assorted(nn.Module):
    """Layers that interception must open: strides, paddings, no bias, sequences."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 2), strides=(2, 1), padding="VALID")(x))
        x = nn.relu(nn.Conv(5, (2, 2), padding=((1, 0), (0, 2)), use_bias=False)(x))
        x = nn.relu(nn.Conv(5, (3, 3), strides=2, padding=1)(x))
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        x = nn.tanh(nn.Dense(6, name="sequence")(x))
        x = nn.relu(nn.Conv(3, (3,), padding="SAME")(x))
        return nn.Dense(10, use_bias=False)(x.reshape(x.shape[0], -1))


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.RMSNorm()(nn.Dense(6)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


class Twice(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x.reshape(x.shape[0], -1)
        shared = nn.Dense(x.shape[-1])
        return nn.Dense(10)(shared(nn.relu(shared(x))))


class Peeks(nn.Module):
    """Uses a layer's kernel outside the layer."""

    @nn.compact
    def __call__(self, x):
        dense = nn.Dense(10)
        y = dense(x.reshape(x.shape[0], -1))
        if self.is_initializing():
            return y
        return y * jnp.sum(dense.variables["params"]["kernel"])


class Grouped(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (3, 3))(x)
        x = nn.Conv(4, (3, 3), feature_group_count=2)(x)
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


class Remat(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.remat(nn.Dense)(6)(x.reshape(x.shape[0], -1))
        return nn.Dense(10)(x)


class Inner(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


class Tripled(nn.Module):
    """Its parameters are transformed on the way to the layer."""

    @nn.compact
    def __call__(self, x):
        wrapped = nn.map_variables(
            Inner,
            "params",
            trans_in_fn=lambda p: jax.tree.map(lambda v: 3 * v, p),
            init=self.is_initializing(),
            mutable=self.is_initializing(),
        )
        return wrapped()(x)


class WeightNormed(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.WeightNorm(nn.Dense(6), use_scale=False)(x.reshape(x.shape[0], -1))
        return nn.Dense(10)(x)


class Promoted(nn.Module):
    @nn.compact
    def __call__(self, x):
        def scaled(x, kernel, bias, dtype=None, **_):
            return x, 2 * kernel, bias

        return nn.Dense(10, promote_dtype=scaled)(x.reshape(x.shape[0], -1))


class Stacked(nn.Module):
    """Layers inside a lifted transform with stacked parameters."""

    @nn.compact
    def __call__(self, x):
        heads = nn.vmap(
            Inner,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=None,
            out_axes=0,
            axis_size=3,
        )()(x)
        return heads.sum(0)


class Rooted(nn.Module):
    """A layer at the root of the parameters."""

    def setup(self):
        self.dense = nn.Dense(10)
        nn.share_scope(self, self.dense)

    def __call__(self, x):
        return self.dense(x.reshape(x.shape[0], -1))


class Boxed(nn.Module):
    """Parameters with sharding annotations around them."""

    @nn.compact
    def __call__(self, x):
        init = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "out"))
        return nn.Dense(10, kernel_init=init)(x.reshape(x.shape[0], -1))


class Scanned(nn.Module):
    """One layer's parameters per step of a lifted loop."""

    @nn.compact
    def __call__(self, x):
        loop = nn.scan(
            Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=2
        )
        x, _ = loop()(x.reshape(x.shape[0], -1), None)
        return nn.Dense(10)(x)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return nn.relu(nn.Dense(x.shape[-1])(x)), None


class RematBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.remat(Inner)()(x)


class Mixing(nn.Module):
    """Scales by the largest pixel of whatever it is given, and swaps axes."""

    @nn.compact
    def __call__(self, x):
        x = x / jnp.max(jnp.abs(x))
        x = nn.relu(nn.Dense(3)(x.reshape(-1, 4)))
        x = x.reshape(-1, 8, 6).transpose(1, 0, 2)
        x = nn.Dense(2)(x).transpose(1, 0, 2)
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


class Jitted(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.jit(Inner)()(x)


class Mapped(nn.Module):
    """One layer, mapped over two versions of the image."""

    @nn.compact
    def __call__(self, x):
        both = nn.vmap(
            Inner, variable_axes={"params": None}, split_rngs={"params": False}
        )
        return both()(jnp.stack([x, x * x])).sum(0)


class MappedByHand(nn.Module):
    @nn.compact
    def __call__(self, x):
        dense = nn.Dense(10)
        x = x.reshape(x.shape[0], -1)
        if self.is_initializing():
            return dense(x)
        return jax.vmap(lambda row: dense(row[None])[0])(x)


class Detached(nn.Module):
    """A model within the model, whose parameters are one of its own."""

    @nn.compact
    def __call__(self, x):
        inner = Inner(parent=None)
        params = self.param("inner", lambda key: inner.init(key, x)["params"])
        return inner.apply({"params": params}, x)


def tokens(x, count, dtype=jnp.int32):
    """Whole numbers below `count` from an image's pixels: [B, H, W, C] -> [B, P]."""
    steps = jnp.clip(jnp.abs(x) * count / 2, 0, count - 1)
    return steps.reshape(x.shape[0], -1).astype(dtype)


class Tied(nn.Module):
    """Uses a table for its input and, as a matrix, for its output."""

    @nn.compact
    def __call__(self, x):
        embed = nn.Embed(10, 6)
        x = nn.tanh(nn.Dense(6)(embed(tokens(x, 10)).mean(1)))
        return embed.attend(x)


class TiedByHand(nn.Module):
    def setup(self):
        self.embed = nn.Embed(10, 6)

    def __call__(self, x):
        return self.embed(tokens(x, 10)).mean(1) @ self.embed.embedding.T


class EmbeddedTwice(nn.Module):
    @nn.compact
    def __call__(self, x):
        embed = nn.Embed(10, 6)
        rows = embed(tokens(x, 10)) * embed(tokens(x, 5))
        return nn.Dense(10)(rows.mean(1))


class WideTokens(nn.Module):
    """Tokens of a type that int32 does not hold."""

    @nn.compact
    def __call__(self, x):
        return nn.Embed(10, 10)(tokens(x, 10, jnp.uint32)).mean(1)


class SharedNorm(nn.Module):
    @nn.compact
    def __call__(self, x):
        norm = nn.LayerNorm()
        x = nn.relu(norm(nn.Dense(6)(x.reshape(x.shape[0], -1))))
        return nn.Dense(10)(norm(nn.Dense(6)(x)))


class NormedOver(nn.Module):
    """Layer normalisation over other axes than the last."""

    reduction_axes: tuple[int, ...]
    feature_axes: int | tuple[int, ...] = -1

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (3, 3), strides=2)(x)
        x = nn.LayerNorm(
            reduction_axes=self.reduction_axes, feature_axes=self.feature_axes
        )(x)
        return nn.Dense(10)(nn.relu(x).reshape(x.shape[0], -1))


class GroupedOver(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (3, 3), strides=2)(x)
        x = nn.GroupNorm(2, reduction_axes=(2, 3))(x)
        return nn.Dense(10)(nn.relu(x).reshape(x.shape[0], -1))


class NormedPartly(nn.Module):
    """Statistics of some features only."""

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(6)(x.reshape(x.shape[0], -1))
        x = nn.LayerNorm()(x, mask=jnp.arange(6)[None] < 4)
        return nn.Dense(10)(nn.relu(x))
